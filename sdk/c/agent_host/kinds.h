// The other kinds of plugins: context builders, output validators and media policies. Each is a function that receives
// the request of the host. Each part of this header is available if the world exports the interface. In the structures
// below, `request` is the complete request of the host, as `plugin.h` defines it.

#ifndef AGENT_HOST_KINDS_H
#define AGENT_HOST_KINDS_H

#include "plugin.h"

#include "result.h"

static inline char *ah_optional_text(const plugin_option_string_t *text) {
    return text->is_some ? ah_copy(text->val.ptr, text->val.len) : NULL;
}

#ifdef EXPORTS_AGENT_HOST_PLUGIN_CONTEXT_BUILDER_HISTORY_KEEP

// The largest number of sections that a function can add.
#define AH_MAX_SECTIONS 16

// The start of a turn. `user` is the name of the user, or NULL if the agent knows none. `turn` counts from 1.
typedef struct {
    char *user;
    uint32_t turn;
    const exports_agent_host_plugin_context_builder_request_t *request;
} ah_context;

// The prompt of a turn. Add sections with the functions below.
typedef struct {
    exports_agent_host_plugin_context_builder_section_t sections[AH_MAX_SECTIONS];
    size_t section_count;
    // A text of at most 64 KiB that the host passes to every step of the turn, or NULL.
    const char *state;
    // Whether the model gets no history of the conversation.
    bool leaves_out_history;
    // If it is not NULL, the turn ends with this error.
    const char *failure;
} ah_prompt;

static inline void ah_add_section(ah_prompt *prompt, const char *name, const char *text, uint8_t stability) {
    if (prompt->section_count == AH_MAX_SECTIONS) abort();
    exports_agent_host_plugin_context_builder_section_t *section = &prompt->sections[prompt->section_count++];
    plugin_string_dup(&section->name, name);
    plugin_string_dup(&section->text, text);
    section->stability = stability;
}

// Adds a section whose text is the same in every turn, so that providers can cache the prompt.
static inline void ah_fixed(ah_prompt *prompt, const char *name, const char *text) {
    ah_add_section(prompt, name, text, EXPORTS_AGENT_HOST_PLUGIN_CONTEXT_BUILDER_STABILITY_FIXED);
}

// Adds a section whose text may change.
static inline void ah_dynamic(ah_prompt *prompt, const char *name, const char *text) {
    ah_add_section(prompt, name, text, EXPORTS_AGENT_HOST_PLUGIN_CONTEXT_BUILDER_STABILITY_DYNAMIC);
}

// Fails with the message of the prompt, if it has one.
static inline bool ah_prompt_failed(const ah_prompt *prompt, agent_host_plugin_types_failure_t *err) {
    if (prompt->failure == NULL) return false;
    err->tag = AGENT_HOST_PLUGIN_TYPES_FAILURE_FAILED;
    plugin_string_dup(&err->val.failed, prompt->failure);
    return true;
}

static inline exports_agent_host_plugin_context_builder_section_t *ah_copy_sections(const ah_prompt *prompt) {
    size_t size = prompt->section_count * sizeof *prompt->sections;
    return memcpy(ah_allocate(size), prompt->sections, size);
}

// Exports a function `void build(const ah_context *context, ah_prompt *prompt)`, which the host calls at the start of
// each turn.
#define AH_EXPORT_CONTEXT_BUILDER(build)                                                                                 \
    bool exports_agent_host_plugin_context_builder_init(exports_agent_host_plugin_context_builder_request_t *request,   \
                                                        exports_agent_host_plugin_context_builder_prompt_t *ret,        \
                                                        exports_agent_host_plugin_context_builder_failure_t *err) {     \
        ah_context context = {ah_optional_text(&request->scope.user), request->scope.turn, request};                    \
        ah_prompt prompt = {.section_count = 0};                                                                        \
        build(&context, &prompt);                                                                                       \
        if (ah_prompt_failed(&prompt, err)) return false;                                                               \
        memset(ret, 0, sizeof *ret);                                                                                    \
        ret->system.ptr = ah_copy_sections(&prompt);                                                                    \
        ret->system.len = prompt.section_count;                                                                         \
        ret->history = prompt.leaves_out_history ? EXPORTS_AGENT_HOST_PLUGIN_CONTEXT_BUILDER_HISTORY_LEAVE_OUT          \
                                                 : EXPORTS_AGENT_HOST_PLUGIN_CONTEXT_BUILDER_HISTORY_KEEP;              \
        ret->state.is_some = prompt.state != NULL;                                                                      \
        if (prompt.state != NULL) plugin_string_dup((plugin_string_t *)&ret->state.val, prompt.state);                  \
        return true;                                                                                                    \
    }

// A step of a turn, which is one call of the model. `step` counts from 0, and `steps_left` includes this step. `state`
// is the state of the prompt, or NULL.
typedef struct {
    uint32_t step;
    uint32_t steps_left;
    char *state;
    // The type is `exports_agent_host_plugin_step_context_request_t`.
    const void *request;
} ah_step;

// Exports a function `void add(const ah_step *step, ah_prompt *prompt)`, which the host calls before each call of the
// model. The function can add sections; the other fields of the prompt are ignored, except `failure`.
#define AH_EXPORT_STEP_CONTEXT(add)                                                                                      \
    bool exports_agent_host_plugin_step_context_step(exports_agent_host_plugin_step_context_request_t *request,         \
                                                     exports_agent_host_plugin_step_context_list_section_t *ret,        \
                                                     exports_agent_host_plugin_step_context_failure_t *err) {           \
        char *state = request->state.is_some ? ah_copy(request->state.val.ptr, request->state.val.len) : NULL;          \
        ah_step step = {request->step, request->steps_left, state, request};                                            \
        ah_prompt prompt = {.section_count = 0};                                                                        \
        add(&step, &prompt);                                                                                            \
        if (ah_prompt_failed(&prompt, err)) return false;                                                               \
        ret->ptr = ah_copy_sections(&prompt);                                                                           \
        ret->len = prompt.section_count;                                                                                \
        return true;                                                                                                    \
    }

#endif

#ifdef EXPORTS_AGENT_HOST_PLUGIN_OUTPUT_VALIDATOR_VERDICT_ACCEPT

// The output that would end a turn. `json` is the text if it is JSON, and NULL otherwise. `schema` is the agent's
// output schema, or NULL. `attempt` counts from 1. If `corrections_left` is 0, a rejection ends the turn.
typedef struct {
    char *text;
    char *json;
    char *schema;
    uint32_t attempt;
    uint32_t corrections_left;
    const exports_agent_host_plugin_output_validator_request_t *request;
} ah_output;

// What happens to an output. Create it with the functions below.
typedef struct {
    uint8_t tag;
    bool is_json;
    const char *text;
    const ah_violation *problems;
    size_t problem_count;
} ah_verdict;

// Accepts the output.
static inline ah_verdict ah_accept(void) {
    return (ah_verdict){.tag = EXPORTS_AGENT_HOST_PLUGIN_OUTPUT_VALIDATOR_VERDICT_ACCEPT};
}

// Accepts the output, and replaces it by this text.
static inline ah_verdict ah_accept_text(const char *text) {
    return (ah_verdict){.tag = EXPORTS_AGENT_HOST_PLUGIN_OUTPUT_VALIDATOR_VERDICT_ACCEPT_AS, .text = text};
}

// Accepts the output, and replaces it by this JSON value.
static inline ah_verdict ah_accept_json(const char *json) {
    return (ah_verdict){.tag = EXPORTS_AGENT_HOST_PLUGIN_OUTPUT_VALIDATOR_VERDICT_ACCEPT_AS, .is_json = true, .text = json};
}

// Rejects the output for several problems.
static inline ah_verdict ah_reject_all(const ah_violation *problems, size_t count) {
    uint8_t tag = EXPORTS_AGENT_HOST_PLUGIN_OUTPUT_VALIDATOR_VERDICT_REJECT;
    return (ah_verdict){.tag = tag, .problems = problems, .problem_count = count};
}

// Rejects the output. The model reads the message, which should say what is wrong and what would be right. `pointer` is
// a JSON pointer to the wrong value. It is empty if the message is about the whole output.
static inline ah_verdict ah_reject(const char *pointer, const char *message) {
    ah_violation *problem = ah_allocate(sizeof *problem);
    *problem = (ah_violation){pointer, message};
    return ah_reject_all(problem, 1);
}

static inline void ah_return_verdict(ah_verdict verdict, exports_agent_host_plugin_output_validator_verdict_t *ret) {
    memset(ret, 0, sizeof *ret);
    ret->tag = verdict.tag;
    if (verdict.tag == EXPORTS_AGENT_HOST_PLUGIN_OUTPUT_VALIDATOR_VERDICT_ACCEPT_AS) {
        ret->val.accept_as.tag = verdict.is_json ? EXPORTS_AGENT_HOST_PLUGIN_OUTPUT_VALIDATOR_OUTPUT_JSON
                                                 : EXPORTS_AGENT_HOST_PLUGIN_OUTPUT_VALIDATOR_OUTPUT_TEXT;
        // A text and JSON have the same representation.
        plugin_string_dup(&ret->val.accept_as.val.text, verdict.text);
    }
    if (verdict.tag != EXPORTS_AGENT_HOST_PLUGIN_OUTPUT_VALIDATOR_VERDICT_REJECT) return;
    ret->val.reject.ptr = ah_allocate(verdict.problem_count * sizeof *ret->val.reject.ptr);
    ret->val.reject.len = verdict.problem_count;
    for (size_t index = 0; index < verdict.problem_count; index++) {
        plugin_string_dup(&ret->val.reject.ptr[index].pointer, verdict.problems[index].pointer);
        plugin_string_dup(&ret->val.reject.ptr[index].message, verdict.problems[index].message);
    }
}

static inline ah_output ah_output_of(const exports_agent_host_plugin_output_validator_request_t *request) {
    return (ah_output){
        .text = ah_copy(request->text.ptr, request->text.len),
        .json = request->structured.is_some ? ah_copy(request->structured.val.ptr, request->structured.val.len) : NULL,
        .schema = request->output_schema.is_some ? ah_copy(request->output_schema.val.ptr, request->output_schema.val.len) : NULL,
        .attempt = request->attempt,
        .corrections_left = request->corrections_left,
        .request = request,
    };
}

// Exports a function `ah_verdict validate(const ah_output *output)`.
#define AH_EXPORT_OUTPUT_VALIDATOR(validate)                                                                             \
    bool exports_agent_host_plugin_output_validator_validate(                                                           \
        exports_agent_host_plugin_output_validator_request_t *request,                                                  \
        exports_agent_host_plugin_output_validator_verdict_t *ret,                                                      \
        exports_agent_host_plugin_output_validator_failure_t *err) {                                                    \
        (void)err;                                                                                                      \
        ah_output output = ah_output_of(request);                                                                       \
        ah_return_verdict(validate(&output), ret);                                                                      \
        return true;                                                                                                    \
    }

#endif

#ifdef EXPORTS_AGENT_HOST_PLUGIN_MEDIA_POLICY_DECISION_KEEP

// An image or a file of the conversation. `name` is NULL if it has none. `seen_count` is the number of calls of the
// model in which it was sent. `width` and `height` are 0 if they are unknown.
typedef struct {
    char *name;
    char *mime_type;
    uint32_t seen_count;
    uint32_t width;
    uint32_t height;
    const exports_agent_host_plugin_media_policy_item_t *item;
} ah_media;

// How a media item is sent. Create it with the functions below.
typedef exports_agent_host_plugin_media_policy_decision_t ah_decision;

// Sends the media item unchanged.
static inline ah_decision ah_keep(void) {
    return (ah_decision){.tag = EXPORTS_AGENT_HOST_PLUGIN_MEDIA_POLICY_DECISION_KEEP};
}

// Sends this text instead of the media item.
static inline ah_decision ah_mask(const char *text) {
    ah_decision decision = {.tag = EXPORTS_AGENT_HOST_PLUGIN_MEDIA_POLICY_DECISION_MASK};
    plugin_string_dup(&decision.val.mask, text);
    return decision;
}

// Sends the image scaled down to fit this size in pixels.
static inline ah_decision ah_downscale(uint32_t width, uint32_t height) {
    ah_decision decision = {.tag = EXPORTS_AGENT_HOST_PLUGIN_MEDIA_POLICY_DECISION_DOWNSCALE};
    decision.val.downscale.width = width;
    decision.val.downscale.height = height;
    return decision;
}

static inline ah_media ah_media_of(const exports_agent_host_plugin_media_policy_item_t *item) {
    bool has_size = item->media.dimensions.is_some;
    return (ah_media){
        .name = ah_optional_text(&item->media.name),
        .mime_type = ah_copy(item->media.mime_type.ptr, item->media.mime_type.len),
        .seen_count = item->seen_count,
        .width = has_size ? item->media.dimensions.val.width : 0,
        .height = has_size ? item->media.dimensions.val.height : 0,
        .item = item,
    };
}

// Exports a function `ah_decision decide(const ah_media *media)`, which is called for each image and file of a prompt.
#define AH_EXPORT_MEDIA_POLICY(decide_item)                                                                              \
    bool exports_agent_host_plugin_media_policy_decide(exports_agent_host_plugin_media_policy_request_t *request,       \
                                                       exports_agent_host_plugin_media_policy_list_decision_t *ret,     \
                                                       exports_agent_host_plugin_media_policy_failure_t *err) {         \
        (void)err;                                                                                                      \
        ret->len = request->items.len;                                                                                  \
        ret->ptr = ah_allocate(ret->len * sizeof *ret->ptr);                                                            \
        for (size_t index = 0; index < ret->len; index++) {                                                             \
            ah_media media = ah_media_of(&request->items.ptr[index]);                                                   \
            ret->ptr[index] = decide_item(&media);                                                                      \
        }                                                                                                               \
        return true;                                                                                                    \
    }

#endif

#endif
