//! Generated bindings of `wasi:logging`.

#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

wasmtime::component::bindgen!({
    inline: "
        package agent-host:host;

        world host {
            import wasi:logging/logging;
        }
    ",
    path: "wit/logging.wit",
    imports: { default: async | trappable },
});
