//! `clients/scenarios.json`, which clients in other languages play, against the model.

use std::collections::BTreeMap;

use delayline_web::{Access, Dashboard, Role};
use serde_json::Value;

use crate::support::{call, orders};

/// Puts saved values in the place of `$name`.
fn filled(value: &Value, saved: &BTreeMap<String, Value>) -> Value {
    match value {
        Value::String(text) if text.starts_with('$') => saved[&text[1..]].clone(),
        Value::Array(items) => items.iter().map(|item| filled(item, saved)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), filled(value, saved))).collect()
        }
        other => other.clone(),
    }
}

/// Whether an answer has the expected members: `*` is anything, and members that are not named are
/// free.
fn matches(expected: &Value, answer: &Value) -> bool {
    match (expected, answer) {
        (Value::String(any), _) if any == "*" => !answer.is_null(),
        (Value::Object(expected), Value::Object(answer)) => expected
            .iter()
            .all(|(name, value)| answer.get(name).is_some_and(|answer| matches(value, answer))),
        (Value::Array(expected), Value::Array(answer)) => {
            expected.len() == answer.len()
                && expected.iter().zip(answer).all(|(expected, answer)| matches(expected, answer))
        }
        _ => expected == answer,
    }
}

#[tokio::test]
async fn the_model_answers_as_the_scenarios_say() {
    let scenarios = include_str!("../../../../clients/scenarios.json");
    let scenarios: Vec<Value> = serde_json::from_str(scenarios).unwrap();
    assert!(scenarios.len() >= 5);
    for scenario in &scenarios {
        let access = Access::everyone(Role::Operator | Role::Worker);
        let site = Dashboard::new(access).queue(orders().await).router().unwrap();
        let mut saved = BTreeMap::new();
        for step in scenario["steps"].as_array().unwrap() {
            let path = format!("/queues/orders{}", step["path"].as_str().unwrap());
            let body = filled(&step["body"], &saved).to_string();
            let answer = call(&site, "POST", &path, &body).await;
            let shown = format!("{}: {step}: {}", scenario["name"], answer.text());
            assert_eq!(Some(u64::from(answer.status.as_u16())), step["status"].as_u64(), "{shown}");
            let value = answer.json();
            let expected = filled(step.get("answer").unwrap_or(&Value::Null), &saved);
            assert!(expected.is_null() || matches(&expected, &value), "{shown}");
            for (name, place) in step["save"].as_object().into_iter().flatten() {
                let place = place.as_array().unwrap().iter();
                let found = place.fold(&value, |value, part| match part {
                    Value::String(name) => &value[name.as_str()],
                    part => &value[usize::try_from(part.as_u64().unwrap()).unwrap()],
                });
                saved.insert(name.clone(), found.clone());
            }
        }
    }
}
