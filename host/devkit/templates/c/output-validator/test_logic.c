// Run by `zig run`, without the host.

#include "logic.h"

#include <assert.h>
#include <string.h>

int main(void) {
    const char *finished = "The harbour opens at 6.", *open = "The harbour opens at TODO.";
    assert(unfinished(finished, strlen(finished)) == NULL);
    assert(strcmp(unfinished(open, strlen(open)), "TODO") == 0);
    assert(unfinished("", 0) == NULL);
    return 0;
}
