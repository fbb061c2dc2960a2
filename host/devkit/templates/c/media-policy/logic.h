// The logic of the plugin. It does not use the host, so it can be tested directly.

#include <stddef.h>
#include <stdint.h>

// Returns the text to send instead of a media item, or NULL to send the media item. The caller must free the text.
char *replacement(const char *name, size_t length, uint32_t seen_count);
