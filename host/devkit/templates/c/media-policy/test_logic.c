// Run by `zig run`, without the host.

#include "logic.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    assert(line("chart.png", 9, 0) == NULL);
    char *text = line("chart.png", 9, 1);
    assert(text != NULL && strcmp(text, "[chart.png: seen before]") == 0);
    free(text);
    return 0;
}
