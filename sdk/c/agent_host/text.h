// Memory and texts.

#ifndef AGENT_HOST_TEXT_H
#define AGENT_HOST_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A list of texts.
typedef struct {
    char **items;
    size_t length;
} ah_list;

// Returns memory of this size that contains zeros. Traps if there is no memory.
static inline void *ah_allocate(size_t size) {
    void *memory = calloc(1, size > 0 ? size : 1);
    if (memory == NULL) abort();
    return memory;
}

// Returns a new text, formatted as `vprintf` does.
static inline char *ah_format_list(const char *format, va_list arguments) {
    va_list copy;
    va_copy(copy, arguments);
    int length = vsnprintf(NULL, 0, format, copy);
    va_end(copy);
    if (length < 0) abort();
    char *text = ah_allocate((size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    return text;
}

// Returns a new text, formatted as `printf` does.
__attribute__((format(printf, 1, 2))) static inline char *ah_format(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *text = ah_format_list(format, arguments);
    va_end(arguments);
    return text;
}

// Appends a formatted text to `*text`, which is NULL or a text from a function of this header.
__attribute__((format(printf, 2, 3))) static inline void ah_append(char **text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *added = ah_format_list(format, arguments);
    va_end(arguments);
    size_t before = *text == NULL ? 0 : strlen(*text), length = strlen(added);
    char *joined = realloc(*text, before + length + 1);
    if (joined == NULL) abort();
    memcpy(joined + before, added, length + 1);
    *text = joined;
    free(added);
}

// Returns a copy of these bytes as a text.
static inline char *ah_copy(const void *bytes, size_t length) {
    char *text = ah_allocate(length + 1);
    if (length > 0) memcpy(text, bytes, length);
    return text;
}

#endif
