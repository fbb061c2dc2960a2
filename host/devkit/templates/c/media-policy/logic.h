// What the plugin does, without anything of the host: it is tested as it is.

#include <stddef.h>
#include <stdint.h>

// What is sent in place of a medium; NULL: the medium itself. To be freed.
char *line(const char *name, size_t length, uint32_t seen_count);
