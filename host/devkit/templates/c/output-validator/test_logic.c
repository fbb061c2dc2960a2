// Tests of the logic, without the host. The README contains the command that runs them.

#include "logic.h"

#include <assert.h>
#include <string.h>

int main(void) {
    const char *finished = "The harbour opens at 6.", *open = "The harbour opens at TODO.";
    assert(find_unfinished(finished, strlen(finished)) == NULL);
    assert(strcmp(find_unfinished(open, strlen(open)), "TODO") == 0);
    assert(find_unfinished("", 0) == NULL);
    return 0;
}
