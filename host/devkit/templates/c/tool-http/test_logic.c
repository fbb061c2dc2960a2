// Tests of the logic, without the host. The README contains the command that runs them.

#include "logic.h"

#include <assert.h>

int main(void) {
    assert(kind_of_status(200) == STATUS_OK);
    assert(kind_of_status(404) == STATUS_NOT_FOUND);
    assert(kind_of_status(429) == STATUS_BUSY && kind_of_status(503) == STATUS_BUSY);
    assert(kind_of_status(400) == STATUS_ERROR);
    return 0;
}
