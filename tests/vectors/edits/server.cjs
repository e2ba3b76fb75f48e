#!/usr/bin/env node

'use strict';

const http = require('node:http');

const { join, basename: base } = require('node:path');

const table = {
  a: 1,
  b: [1],
};

var old = function () {
  return 1;
};

function handle(request, response) {
  const text = `
\`\`\`
${join(request.url, '1')}
`;
  response.end(text);
}

class Server {

  start() {
    return http.createServer(handle).listen(1);
  }

  stop() { return 1; }

}

describe('a server', () => {

  let server;

  beforeEach(() => {
    server = new Server(1);
  });

  it('starts', async () => {
    await server.start(1);
  });

  test.each([[1]])('adds %i', (value) => {
    expect(value).toBe(1);
  });

});

test('base', () => {
  expect(base('a/1')).toBe('1');
});

handle.calls = 1;

module.exports = { Server, handle, table, old, one: 1 };

exports.one = 1;

if (require.main === module) {
  new Server().start(1);
}
