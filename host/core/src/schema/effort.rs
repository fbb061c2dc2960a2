//! How much work checking one document can be. A schema may send the same value down many paths, twice as many at each
//! level; such a schema is only used on documents that are shallow enough for it (row 34).

use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// Checks of one document that are still quick: well under a second.
pub(super) const MAX_CHECKS: f64 = 2_000_000.0;
/// Checks of one place that need no counting, whatever the document.
const LOOSE: f64 = 1_000.0;

/// A schema too large to look through.
const MAX_NODES: usize = 50_000;

/// Keywords whose subschemas look at the same value.
const SAME_VALUE: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];
/// Keywords whose subschemas look at any member of an object.
const ANY_MEMBER: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];
/// Keywords whose subschemas look at any element of an array.
const ANY_ELEMENT: [&str; 4] = ["items", "contains", "additionalItems", "unevaluatedItems"];

/// Where a step down leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Member(String),
    AnyMember,
    Element(usize),
    AnyElement,
}

/// How often each subschema looks, by its rank in the order.
type Counts = BTreeMap<usize, f64>;

/// The subschemas, and which of them look at the same value or further down.
#[derive(Debug, Default)]
pub(super) struct Effort {
    same: Vec<Vec<usize>>,
    down: Vec<Vec<(Step, usize)>>,
    /// So that whoever looks at the same value comes after who sends it there.
    order: Vec<usize>,
    /// Of each in that order.
    rank: Vec<usize>,
}

impl Effort {
    /// Looks through a schema. None where a subschema comes back to itself without going down, or there are too many.
    pub(super) fn of(schema: &Value) -> Option<Self> {
        let mut effort = Self::default();
        let mut places = HashMap::new();
        let mut references = Vec::new();
        effort.add(schema, String::new(), &mut places, &mut references)?;
        for (from, target) in references {
            // What cannot be found is no valid reference, and compiling the schema says so.
            if let Some(to) = places.get(&target) {
                effort.same[from].push(*to);
            }
        }
        effort.sort()?;
        Some(effort)
    }

    /// Whether checking any document that can be read is quick. A loose bound: what it does not clear is counted.
    pub(super) fn is_always_small(&self) -> bool {
        let mut arriving = BTreeMap::from([(self.rank[0], 1.0)]);
        for _ in 0..=super::MAX_DEPTH {
            let looking = self.look(arriving);
            let total: f64 = looking.values().sum();
            if total > LOOSE {
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

    /// Checks that a document takes; more than [`MAX_CHECKS`] are not counted to the end.
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
                let own = |place| arriving(&Step::Element(place), &Step::AnyElement);
                items.iter().enumerate().map(|(place, child)| (own(place), child)).collect()
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

    /// All that look at a value when these arrive at it.
    fn look(&self, mut arriving: Counts) -> Counts {
        let mut looking = BTreeMap::new();
        // Ranks only rise along the way, so each is complete when it is the first.
        while let Some((rank, count)) = arriving.pop_first() {
            for next in &self.same[self.order[rank]] {
                *arriving.entry(self.rank[*next]).or_default() += count;
            }
            looking.insert(rank, count);
        }
        looking
    }

    /// What arrives one level down, by the step that leads there.
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
        places: &mut HashMap<String, usize>,
        references: &mut Vec<(usize, String)>,
    ) -> Option<usize> {
        let node = self.same.len();
        if node == MAX_NODES {
            return None;
        }
        self.same.push(Vec::new());
        self.down.push(Vec::new());
        places.insert(format!("#{pointer}"), node);
        let Value::Object(fields) = schema else { return Some(node) };
        for anchor in ["$anchor", "$dynamicAnchor", "$id"] {
            if let Some(name) = fields.get(anchor).and_then(Value::as_str) {
                places.insert(format!("#{}", name.trim_start_matches('#')), node);
            }
        }
        for reference in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(target) = fields.get(reference).and_then(Value::as_str) {
                references.push((node, target.trim_end_matches('/').to_owned()));
            }
        }
        self.add_fields(fields, node, &pointer, (places, references))?;
        Some(node)
    }

    fn add_fields(
        &mut self,
        fields: &Map<String, Value>,
        node: usize,
        pointer: &str,
        (places, references): (&mut HashMap<String, usize>, &mut Vec<(usize, String)>),
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
                    items.iter().enumerate().map(|(place, child)| (format!("{pointer}/{place}"), child)).collect()
                }
                value if !named && is_applicator(keyword) => vec![(pointer.clone(), value)],
                _ => continue,
            };
            for (place, child) in children {
                let name = place.rsplit('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~");
                let child = self.add(child, place, places, references)?;
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

    /// Orders the subschemas; none where some come back to themselves at the same value.
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

/// As a JSON pointer writes it.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
