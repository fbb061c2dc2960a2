// Reading and writing JSON. The functions that read expect valid JSON, as the host sends it. They do not crash if the
// JSON is invalid, but then their results have no meaning.

#ifndef AGENT_HOST_JSON_H
#define AGENT_HOST_JSON_H

#include "text.h"

#include <ctype.h>

// Returns the text as a JSON string, with quotation marks. NULL becomes `null`.
static inline char *ah_quote(const char *text) {
    if (text == NULL) return ah_format("null");
    char *quoted = ah_allocate(strlen(text) * 6 + 3), *to = quoted;
    *to++ = '"';
    for (; *text != 0; text++) {
        if (*text == '"' || *text == '\\') *to++ = '\\';
        if ((unsigned char)*text < 0x20) to += sprintf(to, "\\u%04x", (unsigned)*text);
        else *to++ = *text;
    }
    *to = '"';
    return quoted;
}

static inline const char *ah_skip_space(const char *at, const char *end) {
    while (at < end && isspace((unsigned char)*at)) at++;
    return at;
}

// Returns the position behind the string that begins at `at` with a quotation mark.
static inline const char *ah_skip_string(const char *at, const char *end) {
    for (at++; at < end && *at != '"'; at++) at += *at == '\\';
    return at < end ? at + 1 : end;
}

// Returns the position behind the value that begins at `at`.
static inline const char *ah_skip_value(const char *at, const char *end) {
    for (int depth = 0; at < end;) {
        if (*at == '"') {
            at = ah_skip_string(at, end);
            continue;
        }
        if (depth == 0 && (*at == ',' || *at == '}' || *at == ']')) break;
        if (*at == '{' || *at == '[') depth++;
        if (*at == '}' || *at == ']') depth--;
        at++;
    }
    return at;
}

static inline unsigned ah_hexadecimal(const char *at) {
    char digits[5] = {at[0], at[1], at[2], at[3], 0};
    return (unsigned)strtoul(digits, NULL, 16);
}

static inline char *ah_write_utf8(char *to, unsigned code) {
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char FIRST[] = {0, 0xC0, 0xE0, 0xF0};
    *to++ = (char)(FIRST[more] | code >> (6 * more));
    while (more-- > 0) *to++ = (char)(0x80 | (code >> (6 * more) & 0x3F));
    return to;
}

// Returns the decoded text of the JSON string between `at` and `end`.
static inline char *ah_decode(const char *at, const char *end) {
    char *text = ah_allocate((size_t)(end - at) + 1), *to = text;
    for (at++; at < end - 1; at++) {
        if (*at != '\\') {
            *to++ = *at;
            continue;
        }
        static const char ESCAPES[] = "\"\\/bfnrt", UNESCAPED[] = "\"\\/\b\f\n\r\t";
        const char *escape = strchr(ESCAPES, *++at);
        if (escape != NULL) {
            *to++ = UNESCAPED[escape - ESCAPES];
            continue;
        }
        if (end - at < 5) break;
        unsigned code = ah_hexadecimal(at + 1);
        at += 4;
        // Characters beyond U+FFFF are written as two escapes.
        if (code >= 0xD800 && code < 0xDC00 && end - at > 6 && at[1] == '\\' && at[2] == 'u') {
            code = 0x10000 + ((code - 0xD800) << 10) + (ah_hexadecimal(at + 3) - 0xDC00);
            at += 6;
        }
        to = ah_write_utf8(to, code);
    }
    return text;
}

// Returns the text of a JSON string, or NULL if the value is not a string. The text ends at the first character U+0000.
static inline char *ah_json_text(const char *json) {
    if (json == NULL) return NULL;
    const char *end = json + strlen(json), *at = ah_skip_space(json, end);
    return *at != '"' ? NULL : ah_decode(at, ah_skip_string(at, end));
}

// Returns the JSON text of the value of a key in a JSON object, or NULL if the value is not an object or has no such
// key.
static inline char *ah_json_value(const char *json, const char *key) {
    if (json == NULL) return NULL;
    const char *end = json + strlen(json), *at = ah_skip_space(json, end);
    if (*at != '{') return NULL;
    while (at < end && *at != '}') {
        at = ah_skip_space(at + 1, end);
        if (at >= end || *at != '"') break;
        const char *name_end = ah_skip_string(at, end);
        bool is_found = strcmp(ah_decode(at, name_end), key) == 0;
        const char *value = ah_skip_space(ah_skip_space(name_end, end) + 1, end);
        at = ah_skip_value(value, end);
        if (is_found) return ah_copy(value, (size_t)(at - value));
    }
    return NULL;
}

// Returns the JSON text of the item of a JSON array at this position, which counts from 0. Returns NULL behind the last
// item, or if the value is not an array.
static inline char *ah_json_item(const char *json, size_t index) {
    if (json == NULL) return NULL;
    const char *end = json + strlen(json), *at = ah_skip_space(json, end);
    if (*at != '[') return NULL;
    for (;; index--) {
        at = ah_skip_space(at + 1, end);
        if (at >= end || *at == ']') return NULL;
        const char *value = at;
        at = ah_skip_value(at, end);
        if (index == 0) return ah_copy(value, (size_t)(at - value));
    }
}

// Returns the text of a key, or NULL if the object has no text with this key.
static inline char *ah_json_string(const char *json, const char *key) { return ah_json_text(ah_json_value(json, key)); }

// Returns whether the text begins like a JSON number.
static inline bool ah_is_number(const char *json) {
    return json != NULL && (*json == '-' || isdigit((unsigned char)*json));
}

// Returns the number of a key, or `otherwise` if the object has no number with this key.
static inline double ah_json_number(const char *json, const char *key, double otherwise) {
    const char *value = ah_json_value(json, key);
    return ah_is_number(value) ? strtod(value, NULL) : otherwise;
}

// Returns the whole number of a key, or `otherwise` if the object has no number with this key. Numbers beyond 2^53 may
// be rounded.
static inline int64_t ah_json_integer(const char *json, const char *key, int64_t otherwise) {
    const char *value = ah_json_value(json, key);
    return ah_is_number(value) ? (int64_t)strtod(value, NULL) : otherwise;
}

// Returns whether the value of a key is true, or `otherwise` if the object has no such key.
static inline bool ah_json_boolean(const char *json, const char *key, bool otherwise) {
    const char *value = ah_json_value(json, key);
    return value == NULL ? otherwise : *value == 't';
}

#endif
