//! Reads one request per line and runs the scenario it names with the `pulsar` crate; see driver.py
//! for the dialogue.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Duration;

use futures::TryStreamExt;
use pulsar::compression::{Compression, CompressionLz4};
use pulsar::consumer::{ConsumerOptions, InitialPosition, Message};
use pulsar::producer::{self, ProducerOptions};
use pulsar::proto::MessageIdData;
use pulsar::reader::Reader;
use pulsar::{Consumer, Pulsar, SubType, TokioExecutor};
use serde_json::{json, Value};

const MESSAGES: usize = 20;
const BATCH: u32 = 5;
const WAIT: Duration = Duration::from_secs(30);

type Outcome = Result<(), Box<dyn Error>>;

fn see(what: &str, value: Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", json!([what, value])).expect("the driver reads");
    out.flush().expect("the driver reads");
}

fn seen(message: &Message<Vec<u8>>) -> Value {
    let metadata = message.metadata();
    let properties: BTreeMap<&str, &str> = metadata
        .properties
        .iter()
        .map(|pair| (pair.key.as_str(), pair.value.as_str()))
        .collect();
    json!({
        "data": String::from_utf8_lossy(&message.deserialize()),
        "key": message.key(),
        "properties": properties,
    })
}

async fn consumer(
    client: &Pulsar<TokioExecutor>,
    topic: &str,
    kind: SubType,
) -> Result<Consumer<Vec<u8>, TokioExecutor>, Box<dyn Error>> {
    Ok(client
        .consumer()
        .with_topic(topic)
        .with_subscription("s")
        .with_subscription_type(kind)
        .with_options(ConsumerOptions::default().with_initial_position(InitialPosition::Earliest))
        .with_unacked_message_resend_delay(Some(Duration::from_secs(1)))
        .build()
        .await?)
}

async fn publish(client: &Pulsar<TokioExecutor>, topic: &str, batch: Option<u32>) -> Outcome {
    let mut producer = client
        .producer()
        .with_topic(topic)
        .with_options(ProducerOptions {
            batch_size: batch,
            compression: Some(Compression::Lz4(CompressionLz4::default())),
            ..Default::default()
        })
        .build()
        .await?;
    let mut receipts = Vec::new();
    for number in 0..MESSAGES {
        let message = producer::Message {
            payload: format!("message {number}").into_bytes(),
            partition_key: Some(format!("key {}", number % 3)),
            properties: HashMap::from([("number".to_string(), number.to_string())]),
            ..Default::default()
        };
        receipts.push(producer.send_non_blocking(message).await?);
    }
    for receipt in receipts {
        receipt.await?;
    }
    producer.close().await?;
    Ok(())
}

async fn next(
    consumer: &mut Consumer<Vec<u8>, TokioExecutor>,
) -> Result<Message<Vec<u8>>, Box<dyn Error>> {
    let message = tokio::time::timeout(WAIT, consumer.try_next()).await??;
    message.ok_or_else(|| "the consumer ended".into())
}

/// All messages of a batched producer, in order; after a new consumer none of those acknowledged.
async fn round_trip(client: &Pulsar<TokioExecutor>, topic: &str) -> Outcome {
    let mut first = consumer(client, topic, SubType::Exclusive).await?;
    publish(client, topic, Some(BATCH)).await?;
    for _ in 0..MESSAGES {
        let message = next(&mut first).await?;
        see("message", seen(&message));
        first.ack(&message).await?;
    }
    first.close().await?;
    publish(client, topic, None).await?;
    let mut second = consumer(client, topic, SubType::Exclusive).await?;
    see("first after a pause", seen(&next(&mut second).await?));
    second.close().await?;
    Ok(())
}

/// Messages that are refused once come again.
async fn redelivery(client: &Pulsar<TokioExecutor>, topic: &str) -> Outcome {
    let mut consumer = consumer(client, topic, SubType::Shared).await?;
    publish(client, topic, None).await?;
    let mut refused = Vec::new();
    let mut left = 0;
    for number in 0..MESSAGES {
        let message = next(&mut consumer).await?;
        if number % 4 == 0 {
            refused.push(String::from_utf8_lossy(&message.deserialize()).to_string());
            consumer.nack(&message).await?;
            left += 1;
        } else {
            consumer.ack(&message).await?;
        }
    }
    let mut again = Vec::new();
    for _ in 0..left {
        let message = next(&mut consumer).await?;
        again.push(String::from_utf8_lossy(&message.deserialize()).to_string());
        consumer.ack(&message).await?;
    }
    again.sort();
    refused.sort();
    see("refused", json!(refused));
    see("come again", json!(again));
    consumer.close().await?;
    Ok(())
}

async fn read(
    reader: &mut Reader<Vec<u8>, TokioExecutor>,
    what: &str,
    count: usize,
) -> Result<Option<MessageIdData>, Box<dyn Error>> {
    let mut last = None;
    for _ in 0..count {
        let message = tokio::time::timeout(WAIT, reader.try_next()).await??;
        let message = message.ok_or("the reader ended")?;
        see(what, seen(&message));
        last = Some(message.message_id().clone());
    }
    Ok(last)
}

/// A reader goes back to a message, and to a time before all of them. `Consumer::seek` is not
/// played: its former half subscribes again beside it, and with any server keeps it waiting.
async fn seek(client: &Pulsar<TokioExecutor>, topic: &str) -> Outcome {
    publish(client, topic, None).await?;
    let mut reader = client
        .reader()
        .with_topic(topic)
        .with_options(ConsumerOptions::default().with_initial_position(InitialPosition::Earliest))
        .into_reader()
        .await?;
    let half = read(&mut reader, "message", MESSAGES / 2).await?;
    read(&mut reader, "message", MESSAGES / 2).await?;
    reader.seek(half, None).await?;
    read(&mut reader, "after a seek to a message", MESSAGES / 2 + 1).await?;
    reader.seek(None, Some(0)).await?;
    read(&mut reader, "after a seek to a time", MESSAGES).await?;
    Ok(())
}

async fn play(request: &Value) -> Outcome {
    let text = |key: &str| request[key].as_str().unwrap_or_default().to_string();
    let client = Pulsar::builder(text("service_url"), TokioExecutor).build().await?;
    let topic = format!("persistent://{}", text("topic"));
    match text("scenario").as_str() {
        "round-trip" => round_trip(&client, &topic).await,
        "redelivery" => redelivery(&client, &topic).await,
        "seek" => seek(&client, &topic).await,
        other => Err(format!("no scenario is called {other}").into()),
    }
}

#[tokio::main]
async fn main() {
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.expect("text")).expect("a request");
        let end = match play(&request).await {
            Ok(()) => json!({"end": "ok"}),
            Err(why) => json!({"end": "failed", "why": why.to_string()}),
        };
        println!("{end}");
    }
}
