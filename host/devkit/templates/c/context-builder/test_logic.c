// Tests of the logic, without the host. The README contains the command that runs them.

#include "logic.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    char *text = reader("ada and more", 3);
    assert(text != NULL && strcmp(text, "You write for ada.") == 0);
    free(text);
    assert(strlen(ANSWERING) > 0);
    return 0;
}
