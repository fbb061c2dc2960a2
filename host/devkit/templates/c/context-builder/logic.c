#include "logic.h"

#include <stdio.h>
#include <stdlib.h>

const char ANSWERING[] = "Answer in plain words and in at most five sentences, unless more is asked for.";

char *reader(const char *user, size_t length) {
    size_t size = length + sizeof "You write for .";
    char *text = malloc(size);
    if (text != NULL) snprintf(text, size, "You write for %.*s.", (int)length, user);
    return text;
}
