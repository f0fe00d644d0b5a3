import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { CIRCUIT, EndpointCircuit } from '../../lib/sending/endpoint-circuit.js';

const START = 1_767_225_600_000;

function failing(times: number, from = START): EndpointCircuit {
  const circuit = new EndpointCircuit();
  for (let i = 0; i < times; i++) {
    circuit.admit(from);
    circuit.note(true, from);
  }
  return circuit;
}

describe('a circuit', () => {
  it('admits every attempt until five in a row have failed', () => {
    expect(failing(4).admit(START)).toBeUndefined();
    expect(failing(5).admit(START)).toBe(START + 30_000);
  });

  it('reports once that it opened, and once that it closed', () => {
    const circuit = new EndpointCircuit();
    const changes = Array.from({ length: 8 }, () => circuit.note(true, START));

    expect(changes).toEqual([...Array(4).fill(undefined), 'opened', ...Array(3).fill(undefined)]);
    expect(circuit.note(false, START)).toBe('closed');
    expect(circuit.note(false, START)).toBeUndefined();
  });

  it('opens for 70 % of at least ten attempts within five minutes', () => {
    const circuit = new EndpointCircuit();
    // Never five in a row: three successes among ten.
    const outcomes = [true, true, false, true, true, false, true, true, false, true];
    const changes = outcomes.map((failed, i) => circuit.note(failed, START + i * 1_000));

    expect(changes.indexOf('opened')).toBe(9);
  });

  it('ignores failures older than five minutes', () => {
    const circuit = new EndpointCircuit();
    for (const failed of [true, true, true, false, true, true, true, false, true]) {
      circuit.note(failed, START);
    }

    expect(circuit.note(true, START + CIRCUIT.window)).toBeUndefined();
  });

  it('admits one trial after its pause, while the others wait for its outcome', () => {
    const circuit = failing(5);

    expect(circuit.admit(START + 29_999)).toBe(START + 30_000);
    expect(circuit.admit(START + 30_000)).toBeUndefined();
    expect(circuit.admit(START + 30_001)).toBe(START + 35_000);
  });

  it('doubles its pause with every failed trial, up to five minutes', () => {
    const circuit = failing(5);
    let now = START + 30_000;
    const rests = Array.from({ length: 6 }, () => {
      circuit.admit(now);
      circuit.note(true, now);
      const rest = circuit.admit(now)! - now;
      now += rest;
      return rest / 1_000;
    });

    expect(rests).toEqual([60, 120, 240, 300, 300, 300]);
  });

  it('closes after a successful trial, and starts over', () => {
    const circuit = failing(5);
    circuit.admit(START + 30_000);

    expect(circuit.note(false, START + 30_000)).toBe('closed');
    expect(circuit.admit(START + 30_000)).toBeUndefined();
    expect(circuit.failingSince(START + 30_000)).toBeUndefined();
    for (let i = 0; i < 5; i++) circuit.note(true, START + 40_000);
    expect(circuit.admit(START + 40_000)).toBe(START + 70_000);
  });

  it('pauses for 30 s again when it opens after it has closed', () => {
    const circuit = failing(5);
    circuit.admit(START + 30_000);
    circuit.note(true, START + 30_000);
    circuit.admit(START + 90_000);
    circuit.note(false, START + 90_000);
    for (let i = 0; i < 5; i++) circuit.note(true, START + 91_000);

    expect(circuit.admit(START + 91_000)).toBe(START + 121_000);
  });

  it('stays closed after a success, whatever failed before it', () => {
    const circuit = failing(10);
    circuit.admit(START + 30_000);

    expect(circuit.note(false, START + 30_000)).toBe('closed');
    expect(circuit.note(true, START + 30_000)).toBeUndefined();
    expect(circuit.state).toBe('closed');
  });

  it('admits another trial if the first has no outcome', () => {
    const circuit = failing(5);
    circuit.admit(START + 30_000);
    circuit.abstain(START + 31_000);

    expect(circuit.admit(START + 31_000)).toBeUndefined();
  });

  it('reports when the failures began, after five in a row', () => {
    const circuit = failing(4, START);
    expect(circuit.failingSince(START)).toBeUndefined();
    circuit.note(true, START + 60_000);

    expect(circuit.failingSince(START + 60_000)).toBe(START);
  });

  it('does not connect failures that are days apart', () => {
    const circuit = failing(5, START);
    const later = START + 6 * 86_400_000;

    expect(circuit.failingSince(later)).toBeUndefined();
    circuit.note(true, later);
    expect(circuit.failingSince(later)).toBeUndefined();
    for (let i = 0; i < 4; i++) circuit.note(true, later + 60_000);
    expect(circuit.failingSince(later + 60_000)).toBe(later);
  });

  it('does not count failures that are days apart as failures in a row', () => {
    const circuit = failing(4);
    const later = START + CIRCUIT.memory + 1;

    expect(circuit.note(true, later)).toBeUndefined();
    expect(circuit.failuresInRow).toBe(1);
    expect(circuit.admit(later)).toBeUndefined();
  });

  it('counts only what came after the clock was set back', () => {
    const circuit = new EndpointCircuit();
    for (let i = 0; i < 20; i++) circuit.note(false, START);
    const outcomes = [true, true, false, true, true, false, true, true, false, true];
    const changes = outcomes.map((failed) => circuit.note(failed, START - 86_400_000));

    expect(changes.at(-1)).toBe('opened');
  });

  it('does not pause longer if the clock is set back', () => {
    const circuit = failing(5, START);

    expect(circuit.admit(START - 86_400_000)).toBeUndefined();
  });

  it('never waits longer than five minutes, nor until a time in the past', () => {
    const step = fc.record({ after: fc.nat(600_000), failed: fc.boolean(), used: fc.boolean() });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const circuit = new EndpointCircuit();
        let now = START;
        for (const { after, failed, used } of steps) {
          now += after;
          const until = circuit.admit(now);
          if (until !== undefined) {
            expect(until).toBeGreaterThan(now);
            expect(until - now).toBeLessThanOrEqual(CIRCUIT.longestRest);
          } else if (used) {
            circuit.note(failed, now);
          } else {
            circuit.abstain(now);
          }
        }
        // After its longest pause, it always admits a trial.
        expect(circuit.admit(now + CIRCUIT.longestRest)).toBeUndefined();
      }),
    );
  });
});
