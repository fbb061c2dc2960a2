// A media policy: it decides which images and files are sent to the provider. The function is called for each image and file. A decision
// does not change the stored media. The build writes the header `agent_host.h`, which connects the function to the host.

#include "agent_host.h"
#include "logic.h"

static ah_decision decide(const ah_media *media) {
    const char *name = media->name == NULL ? media->mime_type : media->name;
    char *text = replacement(name, strlen(name), media->seen_count);
    return text == NULL ? ah_keep() : ah_mask(text);
}

AH_EXPORT_MEDIA_POLICY(decide)
