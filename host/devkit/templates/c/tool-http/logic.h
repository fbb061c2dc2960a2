// The logic of the plugin. It does not use the host, so it can be tested directly.

// What the status of an answer means.
typedef enum { STATUS_OK, STATUS_NOT_FOUND, STATUS_BUSY, STATUS_ERROR } status_kind;

// Returns what an HTTP status means. If the API is busy, the call may succeed later.
status_kind kind_of_status(int status);
