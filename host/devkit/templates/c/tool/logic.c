#include "logic.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_space(const char *at, const char *end) {
    while (at < end && isspace((unsigned char)*at)) at++;
    return at;
}

static unsigned hexadecimal(const char *at) {
    char digits[5] = {at[0], at[1], at[2], at[3], 0};
    return (unsigned)strtoul(digits, NULL, 16);
}

static char *write_utf8(char *to, unsigned code) {
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xC0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *to++ = (char)(0xE0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3F));
        *to++ = (char)(0x80 | (code & 0x3F));
    } else {
        *to++ = (char)(0xF0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3F));
        *to++ = (char)(0x80 | (code >> 6 & 0x3F));
        *to++ = (char)(0x80 | (code & 0x3F));
    }
    return to;
}

static const char *const ESCAPES = "\"\\/bfnrt", *const UNESCAPED = "\"\\/\b\f\n\r\t";

// Decodes the string at `at`, which starts with a quotation mark, and returns the position after it. `to` is a buffer that is
// at least as long as the string, or NULL to skip the string.
static const char *read_string(const char *at, const char *end, char *to) {
    for (at++; at < end && *at != '"'; at++) {
        char byte = *at;
        if (byte == '\\' && at + 1 < end) {
            const char *escape = strchr(ESCAPES, *++at);
            if (*at == 'u' && at + 4 < end) {
                unsigned code = hexadecimal(at + 1);
                at += 4;
                bool is_pair = code >= 0xD800 && code < 0xDC00 && at + 6 < end && at[1] == '\\' && at[2] == 'u';
                if (is_pair) code = 0x10000 + ((code - 0xD800) << 10) + (hexadecimal(at + 3) - 0xDC00), at += 6;
                if (to != NULL) to = write_utf8(to, code);
                continue;
            }
            byte = escape == NULL ? *at : UNESCAPED[escape - ESCAPES];
        }
        if (to != NULL) *to++ = byte;
    }
    if (to != NULL) *to = 0;
    return at < end ? at + 1 : end;
}

// Returns the position after the value at `at`.
static const char *skip_value(const char *at, const char *end) {
    int depth = 0;
    for (; at < end; at++) {
        if (*at == '"') at = read_string(at, end, NULL) - 1;
        else if (*at == '{' || *at == '[') depth++;
        else if (depth == 0 && (*at == ',' || *at == '}')) break;
        else if (*at == '}' || *at == ']') depth--;
    }
    return at;
}

char *json_string(const char *json, size_t length, const char *key) {
    const char *end = json + length, *at = skip_space(json, end);
    char *name = malloc(length + 1), *text = NULL;
    while (name != NULL && text == NULL && at < end && *at != '}') {
        at = skip_space(at + 1, end);
        if (at >= end || *at != '"') break;
        at = skip_space(read_string(at, end, name), end);
        at = skip_space(at + 1, end);
        if (strcmp(name, key) == 0 && at < end && *at == '"') {
            text = malloc(length + 1);
            if (text != NULL) read_string(at, end, text);
        }
        at = skip_value(at, end);
    }
    free(name);
    return text;
}

static bool is_letter(char byte) { return isalnum((unsigned char)byte) || (unsigned char)byte >= 0x80; }

static char lower(char byte) { return (char)tolower((unsigned char)byte); }

bool is_word(const char *text) {
    const char *at = text;
    while (is_letter(*at)) at++;
    return at > text && *at == 0;
}

int count(const char *text, const char *word) {
    int times = 0;
    size_t length = strlen(word);
    while (*text != 0) {
        while (*text != 0 && !is_letter(*text)) text++;
        size_t same = 0, whole = 0;
        for (; is_letter(text[whole]); whole++) {
            if (same == whole && whole < length && lower(text[whole]) == lower(word[whole])) same++;
        }
        times += whole > 0 && whole == length && same == length;
        text += whole;
    }
    return times;
}
