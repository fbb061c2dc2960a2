//! Estimates the work of checking one document. A schema may examine the same value on many paths, and their number
//! may double at each level. Such a schema is only used for documents that are shallow enough (row 34).

use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// Maximum number of subschema checks for one document, which takes well under a second.
pub(super) const MAX_CHECKS: f64 = 2_000_000.0;
/// Up to this number of checks for one value, no counting is needed.
const ALWAYS_QUICK: f64 = 1_000.0;

/// Maximum number of subschemas.
const MAX_NODES: usize = 50_000;

/// Keywords whose subschemas check the same value.
const SAME_VALUE: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];
/// Keywords whose subschemas check any member of an object.
const ANY_MEMBER: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];
/// Keywords whose subschemas check any element of an array.
const ANY_ELEMENT: [&str; 4] = ["items", "contains", "additionalItems", "unevaluatedItems"];

/// A step from a value to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Member(String),
    AnyMember,
    Element(usize),
    AnyElement,
}

/// How often each subschema checks a value, by its rank in the order.
type Counts = BTreeMap<usize, f64>;

/// The subschemas of a schema, and which of them check the same value or a value inside it.
#[derive(Debug, Default)]
pub(super) struct CheckCost {
    same: Vec<Vec<usize>>,
    down: Vec<Vec<(Step, usize)>>,
    /// Topological order: a subschema comes after those that apply it to the same value.
    order: Vec<usize>,
    /// Rank of each subschema in that order.
    rank: Vec<usize>,
}

impl CheckCost {
    /// Analyses a schema. None: a subschema refers to itself for the same value, or there are too many subschemas.
    pub(super) fn of(schema: &Value) -> Option<Self> {
        let mut check_cost = Self::default();
        let mut nodes = HashMap::new();
        let mut references = Vec::new();
        check_cost.add(schema, String::new(), &mut nodes, &mut references)?;
        for (from, target) in references {
            // A reference without a target is invalid, and compiling the schema reports it.
            if let Some(to) = nodes.get(&target) {
                check_cost.same[from].push(*to);
            }
        }
        check_cost.sort()?;
        Some(check_cost)
    }

    /// Whether every document is checked quickly. This is a conservative bound; other schemas are counted for each
    /// document.
    pub(super) fn is_always_small(&self) -> bool {
        let mut arriving = BTreeMap::from([(self.rank[0], 1.0)]);
        for _ in 0..=super::MAX_DEPTH {
            let looking = self.look(arriving);
            let total: f64 = looking.values().sum();
            if total > ALWAYS_QUICK {
                return false;
            }
            let mut most: BTreeMap<usize, f64> = BTreeMap::new();
            for arrivals in self.descend(&looking).into_values() {
                for (rank, count) in arrivals {
                    let kept = most.entry(rank).or_default();
                    *kept = kept.max(count);
                }
            }
            if most.is_empty() {
                break;
            }
            arriving = most;
        }
        true
    }

    /// Number of checks that a document takes. Counting stops after [`MAX_CHECKS`].
    pub(super) fn checks(&self, document: &Value) -> f64 {
        let mut checks = 0.0;
        self.count(document, BTreeMap::from([(self.rank[0], 1.0)]), &mut checks);
        checks
    }

    fn count(&self, value: &Value, arriving: Counts, checks: &mut f64) {
        let looking = self.look(arriving);
        *checks += looking.values().sum::<f64>();
        if *checks > MAX_CHECKS {
            return;
        }
        let down = self.descend(&looking);
        let arriving = |own: &Step, any: &Step| {
            let mut arriving = down.get(any).cloned().unwrap_or_default();
            for (rank, count) in down.get(own).into_iter().flatten() {
                *arriving.entry(*rank).or_default() += count;
            }
            arriving
        };
        let children: Vec<(Counts, &Value)> = match value {
            Value::Object(fields) => {
                let own = |name: &String| arriving(&Step::Member(name.clone()), &Step::AnyMember);
                fields.iter().map(|(name, child)| (own(name), child)).collect()
            }
            Value::Array(items) => {
                let own = |index| arriving(&Step::Element(index), &Step::AnyElement);
                items.iter().enumerate().map(|(index, child)| (own(index), child)).collect()
            }
            _ => return,
        };
        for (arriving, child) in children.into_iter().filter(|(arriving, _)| !arriving.is_empty()) {
            self.count(child, arriving, checks);
            if *checks > MAX_CHECKS {
                return;
            }
        }
    }

    /// All subschemas that check a value if these are applied to it.
    fn look(&self, mut arriving: Counts) -> Counts {
        let mut looking = BTreeMap::new();
        // Ranks only increase along the way, so the count of the lowest rank is always complete.
        while let Some((rank, count)) = arriving.pop_first() {
            for next in &self.same[self.order[rank]] {
                *arriving.entry(self.rank[*next]).or_default() += count;
            }
            looking.insert(rank, count);
        }
        looking
    }

    /// The subschemas that are applied one level down, by the step that leads there.
    fn descend(&self, looking: &Counts) -> HashMap<&Step, Counts> {
        let mut down: HashMap<&Step, Counts> = HashMap::new();
        for (rank, count) in looking {
            for (step, next) in &self.down[self.order[*rank]] {
                *down.entry(step).or_default().entry(self.rank[*next]).or_default() += count;
            }
        }
        down
    }

    fn add(
        &mut self,
        schema: &Value,
        pointer: String,
        nodes: &mut HashMap<String, usize>,
        references: &mut Vec<(usize, String)>,
    ) -> Option<usize> {
        let node = self.same.len();
        if node == MAX_NODES {
            return None;
        }
        self.same.push(Vec::new());
        self.down.push(Vec::new());
        nodes.insert(format!("#{pointer}"), node);
        let Value::Object(fields) = schema else { return Some(node) };
        for anchor in ["$anchor", "$dynamicAnchor", "$id"] {
            if let Some(name) = fields.get(anchor).and_then(Value::as_str) {
                nodes.insert(format!("#{}", name.trim_start_matches('#')), node);
            }
        }
        for reference in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(target) = fields.get(reference).and_then(Value::as_str) {
                references.push((node, target.trim_end_matches('/').to_owned()));
            }
        }
        self.add_fields(fields, node, &pointer, (nodes, references))?;
        Some(node)
    }

    fn add_fields(
        &mut self,
        fields: &Map<String, Value>,
        node: usize,
        pointer: &str,
        (nodes, references): (&mut HashMap<String, usize>, &mut Vec<(usize, String)>),
    ) -> Option<()> {
        for (keyword, value) in fields {
            let pointer = format!("{pointer}/{}", escaped(keyword));
            let named = matches!(
                keyword.as_str(),
                "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions"
            );
            let children: Vec<(String, &Value)> = match value {
                Value::Object(members) if named => {
                    members.iter().map(|(name, child)| (format!("{pointer}/{}", escaped(name)), child)).collect()
                }
                Value::Array(items) if is_applicator(keyword) => {
                    items.iter().enumerate().map(|(index, child)| (format!("{pointer}/{index}"), child)).collect()
                }
                value if !named && is_applicator(keyword) => vec![(pointer.clone(), value)],
                _ => continue,
            };
            for (pointer, child) in children {
                let name = pointer.rsplit('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~");
                let child = self.add(child, pointer, nodes, references)?;
                match keyword.as_str() {
                    "$defs" | "definitions" => {}
                    "properties" => self.down[node].push((Step::Member(name), child)),
                    "prefixItems" => self.down[node].push((Step::Element(name.parse().unwrap_or_default()), child)),
                    "dependentSchemas" => self.same[node].push(child),
                    keyword if SAME_VALUE.contains(&keyword) => self.same[node].push(child),
                    keyword if ANY_ELEMENT.contains(&keyword) => self.down[node].push((Step::AnyElement, child)),
                    _ => self.down[node].push((Step::AnyMember, child)),
                }
            }
        }
        Some(())
    }

    /// Sorts the subschemas. None: some refer to themselves for the same value.
    fn sort(&mut self) -> Option<()> {
        let mut waiting = vec![0_usize; self.same.len()];
        self.same.iter().flatten().for_each(|next| waiting[*next] += 1);
        let mut free: Vec<usize> = (0..waiting.len()).filter(|node| waiting[*node] == 0).collect();
        while let Some(node) = free.pop() {
            self.order.push(node);
            for next in &self.same[node] {
                waiting[*next] -= 1;
                if waiting[*next] == 0 {
                    free.push(*next);
                }
            }
        }
        self.rank = vec![0; self.order.len()];
        self.order.iter().enumerate().for_each(|(rank, node)| self.rank[*node] = rank);
        (self.order.len() == self.same.len()).then_some(())
    }
}

fn is_applicator(keyword: &str) -> bool {
    SAME_VALUE.contains(&keyword)
        || ANY_MEMBER.contains(&keyword)
        || ANY_ELEMENT.contains(&keyword)
        || matches!(keyword, "prefixItems" | "propertyNames")
}

/// Escapes a name for a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
