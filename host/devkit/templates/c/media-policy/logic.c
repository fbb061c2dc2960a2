#include "logic.h"

#include <stdio.h>
#include <stdlib.h>

char *replacement(const char *name, size_t length, uint32_t seen_count) {
    if (seen_count == 0) return NULL;
    size_t size = length + sizeof "[: seen before]";
    char *text = malloc(size);
    if (text != NULL) snprintf(text, size, "[%.*s: seen before]", (int)length, name);
    return text;
}
