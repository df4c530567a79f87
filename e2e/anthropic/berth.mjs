// What the tests share. The clients are as they come; only their URL and key are set.
export const server = process.env.OPENAI_BASE_URL.replace(/\/v1$/, '');

// Model is the scripted provider, a recital: it runs the fenced blocks of the last user message and then quotes what
// came of them.
export const model = 'scripted';

// A model behind Berth, which recites as well: each block of the last user message is a call of a function.
export const reciter = 'reciter';

export const sh = (...commands) => commands.map((c) => '```sh\n' + c + '\n```').join('\n');

export const call = (name, args) => '```json ' + name + '\n' + JSON.stringify(args) + '\n```\n';

export const block = (name, args) => '```' + name + '\n' + JSON.stringify(args) + '\n```\n';

export const search = call('web_search', { type: 'search', queries: ['tides of Brest'] });

// What the server may reach: an MCP server with the tool "tide", and a site that its search service finds.
export const { BERTH_TEST_MCP: mcpURL, BERTH_TEST_SITE: siteURL } = process.env;
