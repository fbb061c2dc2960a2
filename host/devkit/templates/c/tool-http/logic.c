#include "logic.h"

status_kind kind_of_status(int status) {
    if (status >= 200 && status < 300) return STATUS_OK;
    if (status == 404) return STATUS_NOT_FOUND;
    return status == 429 || status >= 500 ? STATUS_BUSY : STATUS_ERROR;
}
