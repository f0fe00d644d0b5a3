import { type ConfigurationProblem, WebhookConfigurationError } from '../errors/webhook.error.js';
import { nearestWord } from '../options/option-names.js';
import { Problems } from '../options/problems.js';
import { isOptions, object, optional, rule, text } from '../options/rules.js';
import { eventNameRule, isEventName, matchesEvent } from '../token/event-name.js';
import {
  checkWithDto,
  checkWithSchema,
  type DataIssue,
  type DtoClass,
  type StandardSchema,
} from './data-checks.js';

/** A JSON Schema, draft 2020-12. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** What an application says about one of its events. */
export interface WebhookEventDefinition<Data = unknown> {
  /** Checks the data as it is sent, in JSON: a schema of zod, valibot, arktype or another Standard Schema library. */
  readonly schema?: StandardSchema<Data> | undefined;
  /** A class with the decorators of class-validator, instead of `schema`. */
  readonly dto?: DtoClass<Data> | undefined;
  /** Documents the data, if the schema's library cannot convert it; it checks nothing. */
  readonly jsonSchema?: JsonSchema | undefined;
  readonly description?: string | undefined;
  /** JSON, checked at start-up. The first one is the data of `endpoints.test(id, { event })`. */
  readonly examples?: readonly NoInfer<Data>[] | undefined;
  /** For the documentation. */
  readonly version?: string | undefined;
  /** Whether receivers should move to another event, or a sentence that says to which. */
  readonly deprecated?: boolean | string | undefined;
}

/** The events that {@link defineEvents} defined, name to data, for `interface WebhookEventMap extends InferEvents<typeof events> {}`. */
export type InferEvents<Events extends WebhookEventCatalog> =
  Events extends WebhookEventCatalog<infer Map> ? Map : never;

/**
 * Defines events once: their types, the checks of their data, and their documentation.
 *
 * ```ts
 * export const events = defineEvents({
 *   'order.created': { schema: z.object({ id: z.string() }), examples: [{ id: 'o-1' }] },
 * });
 *
 * declare module 'nestjs-webhook-token' {
 *   interface WebhookEventMap extends InferEvents<typeof events> {}
 * }
 *
 * WebhookModule.forRoot({ events, … })
 * ```
 *
 * @throws {@link WebhookConfigurationError} with every problem
 */
export function defineEvents<Map extends object>(definitions: {
  readonly [Name in keyof Map]: WebhookEventDefinition<Map[Name]>;
}): WebhookEventCatalog<Map> {
  return new WebhookEventCatalog<Map>(definitions);
}

type Definitions = Readonly<Record<string, WebhookEventDefinition>>;

/** The events that an application has defined. */
export class WebhookEventCatalog<out Map = unknown> {
  /** For the compiler only. */
  declare readonly '~events'?: Map;
  private readonly definitions: ReadonlyMap<string, WebhookEventDefinition>;

  /** @internal */
  constructor(definitions: Definitions) {
    const problems = new Problems();
    if (!isOptions(definitions)) {
      problems.add('events', "must be an object: { 'order.created': { schema } }");
    } else {
      for (const [name, definition] of Object.entries(definitions)) {
        const path = `events["${name}"]`;
        if (isEventName(name, 'swt-draft-00')) DEFINITION(definition, problems, path);
        else problems.add(path, `the name must be ${eventNameRule('swt-draft-00')}`);
      }
    }
    problems.throwIfAny();
    this.definitions = new Map(Object.entries(definitions));
  }

  /** The names of the events. */
  get names(): readonly string[] {
    return [...this.definitions.keys()];
  }

  /** The DTO classes of the events, for the option `extraModels` of `SwaggerModule.createDocument`. */
  get dtos(): DtoClass[] {
    return [...new Set([...this.definitions.values()].flatMap(({ dto }) => dto ?? []))];
  }

  /** The definition of an event; `undefined` if it has none. */
  find(name: string): WebhookEventDefinition | undefined {
    return this.definitions.get(name);
  }

  /**
   * The JSON Schema (draft 2020-12) of an event's data: the one that the definition has, or else the one that the schema's library
   * makes by Standard JSON Schema.
   *
   * @returns `undefined` if the event has neither schema nor DTO
   * @throws {@link WebhookConfigurationError} for an event that is not defined, and for a schema that cannot be converted
   */
  jsonSchema(name: string): JsonSchema | undefined {
    const definition = this.find(name);
    if (definition === undefined) {
      throw new WebhookConfigurationError([{ path: 'events', message: this.unknown(name) }]);
    }
    const { schema, dto, jsonSchema } = definition;
    if (jsonSchema !== undefined || (schema === undefined && dto === undefined)) return jsonSchema;
    const path = `events["${name}"]`;
    const converter = schema?.['~standard'].jsonSchema;
    if (converter === undefined) {
      const what = schema === undefined ? 'a DTO' : `${schema['~standard'].vendor}'s schema`;
      throw new WebhookConfigurationError([
        { path, message: `${what} cannot be converted to JSON Schema; set jsonSchema beside it` },
      ]);
    }
    try {
      const { $schema: _dialect, ...converted } = converter.input({ target: 'draft-2020-12' });
      return converted;
    } catch (cause) {
      const message =
        'cannot be converted to JSON Schema, see the cause; set jsonSchema beside it, or use types that JSON has';
      throw new WebhookConfigurationError([{ path: `${path}.schema`, message }], { cause });
    }
  }

  /**
   * Checks an event's data, as JSON or bytes.
   *
   * @returns what is wrong; nothing for an event without schema and DTO, and for one that is not defined
   * @hidden
   */
  async check(name: string, data: unknown): Promise<readonly DataIssue[]> {
    const { schema, dto } = this.find(name) ?? {};
    if (schema !== undefined) return checkWithSchema(data, schema);
    return dto === undefined ? [] : checkWithDto(data, dto);
  }

  /** Whether an event's data is checked. */
  checks(name: string): boolean {
    const { schema, dto } = this.find(name) ?? {};
    return schema !== undefined || dto !== undefined;
  }

  /**
   * What is wrong with a subscription to a valid name or pattern: it matches no event.
   *
   * @hidden
   */
  subscriptionProblem(pattern: string): string | undefined {
    if (pattern === '**' || this.names.some((name) => matchesEvent(pattern, name)))
      return undefined;
    const isPattern = pattern.includes('*');
    const parents = isPattern ? this.names.map((name) => name.replace(/[^.]+$/, '*')) : [];
    const meant = nearestWord(pattern, [...this.names, ...parents]);
    return `"${pattern}" matches no defined event; ${this.remedy(meant)}`;
  }

  /**
   * The message for an event that is not defined.
   *
   * @hidden
   */
  unknown(name: string): string {
    const meant = nearestWord(name, this.names);
    return `"${name}" is not a defined event; ${this.remedy(meant)}`;
  }

  /**
   * The problems of the examples: each must pass the check of its event.
   *
   * @throws {@link WebhookConfigurationError} if a check throws
   * @hidden
   */
  async exampleProblems(): Promise<ConfigurationProblem[]> {
    const problems: ConfigurationProblem[] = [];
    for (const [name, { examples = [], dto }] of this.definitions) {
      const path = `events["${name}"]`;
      if (dto !== undefined && !(await hasClassValidator())) {
        const message =
          'is checked by class-validator: run "npm install class-validator class-transformer"';
        problems.push({ path: `${path}.dto`, message });
        continue;
      }
      for (const [index, example] of examples.entries()) {
        const at = `${path}.examples[${index}]`;
        const message = await this.exampleProblem(name, example, at);
        if (message !== undefined) problems.push({ path: at, message });
      }
    }
    return problems;
  }

  private async exampleProblem(
    name: string,
    example: unknown,
    path: string,
  ): Promise<string | undefined> {
    // The content type of bytes is unknown, so neither a test event nor the documentation could show them.
    if (example instanceof Uint8Array) {
      return 'is bytes, and an example must be JSON: remove it, and describe the bytes in "description"';
    }
    let data: unknown;
    try {
      data = asJson(example);
    } catch {
      return 'is not JSON: remove functions, BigInts and references to the example itself';
    }
    const issues = await this.check(name, data).catch((cause: unknown) => {
      const message = `the definition of "${name}" throws, see the cause; report invalid data as an issue instead`;
      throw new WebhookConfigurationError([{ path, message }], { cause });
    });
    if (issues.length === 0) return undefined;
    return `is not valid data of the event: ${constraintsOf(issues)}`;
  }

  private remedy(meant: string | undefined): string {
    if (meant !== undefined) return `did you mean "${meant}"?`;
    const shown = this.names.slice(0, MOST_SHOWN).join(', ');
    const more = this.names.length > MOST_SHOWN ? ', …' : '';
    return `use one of ${shown}${more}, or add it to defineEvents`;
  }
}

/** Names that a message lists. */
const MOST_SHOWN = 10;

/** Lists the constraints that data fails, for a message that must not quote the data. */
export function constraintsOf(issues: readonly DataIssue[]): string {
  return [...new Set(issues.map(({ constraint }) => constraint))].join(', ');
}

/** A value as its receiver gets it. */
export function asJson(value: unknown): unknown {
  return value === undefined || value instanceof Uint8Array
    ? value
    : JSON.parse(JSON.stringify(value));
}

const DEFINITION = object<WebhookEventDefinition>()(
  {
    schema: optional(
      rule<StandardSchema>(
        (value) =>
          typeof (value as Partial<StandardSchema> | null)?.['~standard']?.validate === 'function',
        'must be a Standard Schema, such as z.object({ … }); pass a JSON Schema as jsonSchema, and a class as dto',
      ),
    ),
    dto: optional(
      rule<DtoClass>(
        (value) => typeof value === 'function' && value.prototype !== undefined,
        'must be a class; pass a schema as schema',
      ),
    ),
    jsonSchema: optional(rule<JsonSchema>(isOptions, 'must be a JSON Schema object')),
    description: optional(text()),
    examples: optional(rule<readonly unknown[]>(Array.isArray, 'must be a list')),
    version: optional(text("must be a non-empty string, such as '2'")),
    deprecated: optional(
      rule<boolean | string>(
        (value) => typeof value === 'boolean' || (typeof value === 'string' && value !== ''),
        'must be a boolean, or a sentence that names the replacement',
      ),
    ),
  },
  {
    form: 'an object: { schema, description, examples }',
    across({ schema, dto }, at) {
      const isSingle = schema === undefined || dto === undefined;
      at.require(isSingle, 'dto', 'cannot be combined with schema: remove one of them');
    },
  },
);

async function hasClassValidator(): Promise<boolean> {
  return Promise.all([import('class-validator'), import('class-transformer')]).then(
    () => true,
    () => false,
  );
}
