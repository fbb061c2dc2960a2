// Tests of the logic, without the host. The README contains the command that runs them.

#include "logic.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    assert(replacement("chart.png", 9, 0) == NULL);
    char *text = replacement("chart.png", 9, 1);
    assert(text != NULL && strcmp(text, "[chart.png: seen before]") == 0);
    free(text);
    return 0;
}
