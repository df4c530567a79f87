import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI, { toFile } from 'openai';
import { client, containerOf, model, outputs, sh } from './berth.mjs';

const skillFile = (text) => `---\nname: tides\ndescription: ${text}\n---\nRun scripts/tide.sh.\n`;
const files = async (text) => [
  await toFile(Buffer.from(skillFile(text)), 'tides/SKILL.md', { type: 'text/markdown' }),
  await toFile(Buffer.from(`#!/bin/sh\necho ${text}\n`), 'tides/scripts/tide.sh', { type: 'text/x-sh' }),
];

test('a skill with versions is used in a container', async () => {
  const skill = await client.skills.create({ files: await files('low') });
  assert.deepEqual([skill.object, skill.name, skill.description, skill.default_version, skill.latest_version], ['skill', 'tides', 'low', '1', '1']);
  const second = await client.skills.versions.create(skill.id, { files: await files('high') });
  assert.deepEqual([second.object, second.version, second.description, second.skill_id], ['skill.version', '2', 'high', skill.id]);
  const said = [];
  for (const version of [undefined, 'latest', '1']) {
    const skills = [{ type: 'skill_reference', skill_id: skill.id, ...(version && { version }) }];
    const r = await client.responses.create({ model, tools: [{ type: 'shell', environment: { type: 'container_auto', skills } }], input: sh('/home/oai/skills/tides-*/scripts/tide.sh') });
    said.push(outputs(r)[0].stdout);
    await client.containers.delete(containerOf(r));
  }
  assert.deepEqual(said, ['low\n', 'high\n', 'low\n']);

  const changed = await client.skills.update(skill.id, { default_version: '2' });
  assert.deepEqual([changed.default_version, changed.description], ['2', 'high']);
  const versions = [];
  for await (const v of client.skills.versions.list(skill.id, { limit: 1, order: 'asc' })) versions.push(v.version);
  assert.deepEqual(versions, ['1', '2']);
  const archive = Buffer.from(await (await client.skills.versions.content.retrieve('1', { skill_id: skill.id })).arrayBuffer());
  assert.equal(archive.subarray(0, 2).toString(), 'PK');

  const source = { type: 'base64', media_type: 'application/zip', data: archive.toString('base64') };
  const inline = [{ type: 'inline', name: 'tides', description: 'from the request', source }];
  const c = await client.containers.create({ name: 'inline', skills: inline });
  const r = await client.responses.create({ model, tools: [{ type: 'shell', environment: { type: 'container_reference', container_id: c.id } }], input: sh('cat /home/oai/skills/tides-*/SKILL.md') });
  assert.equal(outputs(r)[0].stdout, skillFile('low'));
  await client.containers.delete(c.id);

  const gone = await client.skills.versions.delete('1', { skill_id: skill.id });
  assert.deepEqual([gone.object, gone.deleted, gone.version], ['skill.version.deleted', true, '1']);
  assert.deepEqual(await client.skills.delete(skill.id), { id: skill.id, object: 'skill.deleted', deleted: true });
  await assert.rejects(client.skills.retrieve(skill.id), OpenAI.NotFoundError);
});

test('a folder that is no skill is refused', async () => {
  const [, script] = await files('low');
  await assert.rejects(client.skills.create({ files: [script] }), (e) => e.status === 400 && e.code === 'invalid_skill' && /no SKILL.md/.test(e.message));
});
