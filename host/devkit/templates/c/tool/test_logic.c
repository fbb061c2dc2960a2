// Tests of the logic, without the host. The README contains the command that runs them.

#include "logic.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void check_string(const char *json, const char *key, const char *expected) {
    char *text = json_string(json, strlen(json), key);
    assert(expected == NULL ? text == NULL : text != NULL && strcmp(text, expected) == 0);
    free(text);
}

int main(void) {
    assert(count("One two, and ONE more.", "one") == 2);
    assert(count("ones, one-one", "one") == 2);
    assert(count("", "one") == 0);
    assert(is_word("one") && !is_word("two words") && !is_word(""));

    check_string("{\"text\": \"a\", \"word\": \"b\"}", "word", "b");
    check_string("{\"list\": [{\"word\": \"no\"}, \"}\"], \"word\": \"\\\"\\u00e4\\ud83d\\ude00\\n\"}", "word", "\"ä😀\n");
    check_string("{\"text\": 1}", "text", NULL);
    check_string("{}", "text", NULL);
    return 0;
}
