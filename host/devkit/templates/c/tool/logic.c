#include "logic.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

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
