// Tests of the logic, without the host. The README contains the command that runs them.

#include "logic.h"

#include <assert.h>

int main(void) {
    assert(count("One two, and ONE more.", "one") == 2);
    assert(count("ones, one-one", "one") == 2);
    assert(count("", "one") == 0);
    assert(is_word("one") && !is_word("two words") && !is_word(""));
    return 0;
}
