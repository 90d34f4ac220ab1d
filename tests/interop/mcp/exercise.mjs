// Lists and calls what the import of server-everything offers; prints one JSON line.
export async function exercise(Client, Stdio, Http, options) {
  const [first, ...rest] = process.argv.slice(2);
  const transport = first.startsWith("http") ? new Http(new URL(first)) : new Stdio({ command: first, args: rest });
  const client = new Client({ name: "interop", version: "0" }, options);
  await client.connect(transport);
  const names = [];
  let cursor;
  do {
    const page = await client.listTools(cursor ? { cursor } : {});
    names.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
  } while (cursor);
  const name = "com_example_everything_get-sum";
  const result = await client.callTool({ name, arguments: { a: 2, b: 3 } });
  const wrong = await client.callTool({ name, arguments: { a: "x" } });
  console.log(JSON.stringify({
    names: names.sort(),
    text: result.content[0].text,
    is_error: result.isError ?? false,
    wrong: wrong.content[0].text,
    wrong_is_error: wrong.isError ?? false,
  }));
  await client.close();
}
