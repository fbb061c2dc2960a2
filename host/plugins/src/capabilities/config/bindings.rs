//! Generated bindings of `wasi:config`.

#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

wasmtime::component::bindgen!({
    inline: "
        package agent-host:host;

        world host {
            import wasi:config/store@0.2.0-rc.1;
        }
    ",
    path: "wit/config.wit",
    imports: { default: async | trappable },
});
