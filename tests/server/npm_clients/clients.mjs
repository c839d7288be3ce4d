// Asks the server at the given address through both packages, and prints what they made of its answers.
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { Ollama } from "ollama";
import { createOllama } from "ollama-ai-provider-v2";
import { z } from "zod";

const [url, model] = process.argv.slice(2);
const sum = [{ role: "user", content: "What is 48 plus 24?" }];
const weather = [{ role: "user", content: "What is the weather in Lisbon?" }];
const options = { temperature: 0, num_predict: 120 };

const client = new Ollama({ host: url });
const whole = await client.chat({ model, messages: sum, options });
let streamed = "";
for await (const part of await client.chat({ model, messages: sum, options, stream: true })) {
  streamed += part.message.content;
}
const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const called = await client.chat({
  model, messages: weather, options,
  tools: [{ type: "function", function: { name: "get_weather", description: "The weather of a city", parameters: city } }],
});
const shape = { type: "object", properties: { answer: { type: "integer" } }, required: ["answer"] };
const shaped = await client.chat({ model, messages: sum, options, format: shape });
const tags = await client.list();
const shown = await client.show({ model });

const provider = createOllama({ baseURL: `${url}/api` })(model);
const settings = { model: provider, temperature: 0, maxOutputTokens: 120 };
const text = await generateText({ ...settings, messages: sum });
const stream = streamText({ ...settings, messages: sum });
let pieces = "";
for await (const piece of stream.textStream) {
  pieces += piece;
}
const asked = [];
const getWeather = tool({
  description: "The weather of a city",
  inputSchema: z.object({ city: z.string() }),
  execute: async (input) => {
    asked.push(input.city);
    return `clear in ${input.city}`;
  },
});
const told = await generateText({
  ...settings, messages: weather, tools: { get_weather: getWeather }, stopWhen: stepCountIs(3),
});
const object = await generateText({
  ...settings, messages: sum, output: Output.object({ schema: z.object({ answer: z.number().int() }) }),
});

console.log(JSON.stringify({
  ollama: {
    whole: whole.message.content, streamed, done: whole.done_reason, calls: called.message.tool_calls ?? [],
    shaped: JSON.parse(shaped.message.content), tags: tags.models.map(({ name }) => name),
    capabilities: shown.capabilities,
  },
  provider: {
    whole: text.text, reasoning: text.reasoningText ?? "", streamed: pieces, finish: text.finishReason,
    tokens: text.usage.outputTokens, asked, told: told.text, object: object.output,
  },
}));
