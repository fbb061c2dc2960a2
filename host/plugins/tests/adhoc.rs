use agent_core::message::*;
use agent_core::plugin::*;
use agent_plugins::*;
use std::collections::*;
use std::path::*;
use std::sync::*;
use std::time::*;
fn scope() -> Scope {
    Scope {
        agent: "a".into(),
        session: "a/1".into(),
        delegated_by: None,
        user: None,
        turn: 1,
        trace: TraceContext {
            traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into(),
            tracestate: None,
        },
    }
}
#[derive(Default)]
struct Mem(Mutex<HashMap<Digest, (Media, Vec<u8>)>>);
#[async_trait::async_trait]
impl MediaPort for Mem {
    async fn describe(&self, _: &str, d: &Digest) -> Result<Option<Media>, PortError> {
        Ok(self.0.lock().unwrap().get(d).map(|x| x.0.clone()))
    }
    async fn read(&self, _: &str, d: &Digest, r: MediaRange) -> Result<Vec<u8>, PortError> {
        let m = self.0.lock().unwrap();
        let b = &m[d].1;
        Ok(b[r.offset as usize..(r.offset as usize + r.length as usize).min(b.len())].to_vec())
    }
    async fn put(&self, _: &str, m: MediumToStore) -> Result<Media, PortError> {
        let d = digest_of(&m.bytes);
        let x = Media {
            digest: d.clone(),
            mime_type: m.mime_type,
            size: m.bytes.len() as u64,
            dimensions: None,
            name: m.name,
        };
        self.0.lock().unwrap().insert(d, (x.clone(), m.bytes));
        Ok(x)
    }
}
async fn call(
    s: &Sandbox,
    p: &PluginSetup,
    ports: &Ports,
    name: &str,
    args: &str,
) -> CallReport<Result<agent_core::tool::ToolOutcome, agent_core::tool::ToolError>> {
    s.call_tool(
        p,
        ToolCallRequest {
            name,
            args: args.into(),
            context: ToolCallContext {
                id: CallId("1.1.1".into()),
                attempt: 1,
                time_limit: Duration::from_secs(2),
                scope: scope(),
            },
        },
        ports,
    )
    .await
}
#[tokio::test(flavor = "multi_thread")]
async fn adhoc() {
    let dir = tempfile::tempdir().unwrap();
    let opt = || SandboxOptions {
        cache_directory: Some(dir.path().join("cache")),
        store_directory: Some(dir.path().join("store")),
        limits: HostLimits::default(),
    };
    let plugins = PathBuf::from("../../target/wasm32-wasip2/plugin");
    for round in 0..2 {
        let t = Instant::now();
        let s = Sandbox::new(opt()).unwrap();
        println!("new {:?}", t.elapsed());
        let t = Instant::now();
        let (g, problems) = Generation::load(&s, &plugins, &|e| println!("  {e:?}")).await.unwrap();
        println!("round {round}: {:?} {}", t.elapsed(), g.digest());
        for p in problems {
            println!("PROBLEM {p}");
        }
        for p in g.plugins() {
            println!(
                "{:?} kinds {:?} {} bytes, {} tools, {} imports, manifest {:?}",
                p.identity().to_string(),
                p.kinds(),
                p.size(),
                p.tools().len(),
                p.imports().len(),
                p.manifest()
            );
        }
    }
    let s = Sandbox::new(opt()).unwrap();
    let (g, _) = Generation::load(&s, &plugins, &|_| {}).await.unwrap();
    let again = Generation::from_digests(&s, &g.pinned()).await.unwrap();
    assert_eq!(again.digest(), g.digest());
    let probe = g.plugins().find(|p| p.tools().iter().any(|t| t.name == "probe.echo")).unwrap().clone();
    println!("{:?}", probe.imports());
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("a.txt"), "hello").unwrap();
    std::fs::write(dir.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", tree.join("link")).unwrap();
    let grants = Grants {
        trees: vec![TreeGrant { host: tree.clone(), guest: ".".into(), access: Access::Read }],
        env: [("LANG".to_string(), "C".to_string())].into(),
        config: [("region".to_string(), "eu".to_string())].into(),
    };
    let setup = PluginSetup::new(probe.clone(), grants, CallLimits::default());
    let bare = PluginSetup::new(probe.clone(), Grants::default(), CallLimits::default());
    println!("unmet {:?}", bare.unmet());
    let ports = Ports { media: Some(Arc::new(Mem::default())) };
    for (name, args) in [
        ("probe.echo", r#"{"text":"hi"}"#),
        ("probe.fail", r#"{"kind":"denied","message":"no"}"#),
        ("probe.pending", r#"{"text":"x"}"#),
        ("probe.spin", "{}"),
        ("probe.sleep", r#"{"ms":3600000}"#),
        ("probe.allocate", r#"{"mib":500}"#),
        ("probe.recurse", r#"{"depth":100000000}"#),
        ("probe.panic", r#"{"text":"oh"}"#),
        ("probe.bytes", r#"{"bytes":2000000}"#),
        ("probe.bytes", r#"{"bytes":30000000}"#),
        ("probe.bad_json", "{}"),
        ("probe.log", r#"{"lines":3000,"length":10}"#),
        ("probe.residue", "{}"),
        ("probe.residue", "{}"),
        ("probe.image", r#"{"bytes":100}"#),
        ("probe.image", r#"{"bytes":5000000}"#),
        ("probe.write_image", r#"{"bytes":5000000}"#),
        ("probe.unfinished", r#"{"bytes":100}"#),
        ("probe.env", r#"{"name":"LANG"}"#),
        ("probe.env", r#"{"name":"HOME"}"#),
        ("probe.config", r#"{"name":"region"}"#),
        ("probe.config", r#"{"name":"zone"}"#),
        ("probe.file", r#"{"path":"a.txt"}"#),
        ("probe.file", r#"{"path":"../secret"}"#),
        ("probe.file", r#"{"path":"link"}"#),
        ("probe.file", r#"{"path":"/etc/passwd"}"#),
        ("probe.trees", "{}"),
        ("probe.count", r#"{"path":"a.txt"}"#),
        ("nope", "{}"),
    ] {
        for (w, su) in [("granted", &setup), ("bare", &bare)] {
            if w == "bare"
                && !["probe.file", "probe.config", "probe.echo", "probe.trees", "probe.count"].contains(&name)
            {
                continue;
            }
            let t = Instant::now();
            let r = call(&s, su, &ports, name, args).await;
            let text = match &r.result {
                Ok(x) => format!("{x:?}"),
                Err(e) => format!("FAILURE {e}"),
            };
            println!(
                "{name} {args} [{w}] {:?}\n    {}\n    {:?} {:?} {:?}",
                t.elapsed(),
                text.chars().take(700).collect::<String>(),
                r.cost,
                r.denials,
                r.lost_log
            );
        }
    }
    let digest = {
        let r = call(&s, &setup, &ports, "probe.write_image", r#"{"bytes":5000000}"#).await.result.unwrap().unwrap();
        format!("{r:?}").split("sha256:").nth(1).unwrap()[..64].to_string()
    };
    let t = Instant::now();
    let r = call(&s, &setup, &ports, "probe.checksum", &format!(r#"{{"digest":"sha256:{digest}"}}"#)).await;
    println!("checksum {:?} {:?}", t.elapsed(), r.result);
    // eight spins at once and an echo in between
    let t = Instant::now();
    let spins = futures::future::join_all((0..8).map(|_| {
        let (s, setup, ports) = (s.clone(), setup.clone(), ports.clone());
        tokio::spawn(async move { call(&s, &setup, &ports, "probe.spin", "{}").await.result.unwrap_err().to_string() })
    }));
    let echo = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let t = Instant::now();
        let r = call(&s, &setup, &ports, "probe.echo", r#"{"text":"hi"}"#).await;
        (t.elapsed(), r.result.is_ok())
    };
    let (a, b) = tokio::join!(spins, echo);
    println!("8 spins {:?} {:?}; echo {b:?}", t.elapsed(), a[0]);
    // cancel at random moments
    let t = Instant::now();
    for i in 0..300u64 {
        let c = call(
            &s,
            &setup,
            &ports,
            ["probe.spin", "probe.sleep", "probe.echo"][(i % 3) as usize],
            if i % 3 == 1 {
                r#"{"ms":1000}"#
            } else if i % 3 == 2 {
                r#"{"text":"x"}"#
            } else {
                "{}"
            },
        );
        let _ = tokio::time::timeout(Duration::from_micros((i * 37) % 9000), c).await;
    }
    println!("cancelled {:?}", t.elapsed());
    // overhead
    for (n, a) in [("probe.echo", r#"{"text":"hi"}"#)] {
        for su in [&bare, &setup] {
            let mut v = vec![];
            for _ in 0..2000 {
                let t = Instant::now();
                let r = call(&s, su, &ports, n, a).await;
                v.push(t.elapsed());
                assert!(r.result.is_ok());
            }
            v.sort();
            println!("{n}: median {:?} p99 {:?}", v[1000], v[1980]);
        }
    }
}
