/** Metadata of a class, by method: the parameters that `@WebhookData()` decorates. */
const DATA_PARAMETERS = 'nestjs-webhook-token:data-parameters';

interface DataParameter {
  readonly index: number;
  /** Whether a Standard Schema validates it. */
  readonly hasSchema: boolean;
}

/** Records that a parameter of a method takes event data. */
export function addDataParameter(
  target: object,
  key: string | symbol,
  parameter: DataParameter,
): void {
  const known = dataParameters(target, key);
  Reflect.defineMetadata(DATA_PARAMETERS, [...known, parameter], target.constructor, key);
}

/** The parameters of a method that take event data. */
export function dataParameters(target: object, key: string | symbol): readonly DataParameter[] {
  return (
    (Reflect.getMetadata(DATA_PARAMETERS, target.constructor, key) as
      readonly DataParameter[] | undefined) ?? []
  );
}

/** The type of a parameter, as the compiler recorded it. */
export function parameterType(target: object, key: string | symbol, index: number): unknown {
  const types: unknown = Reflect.getMetadata('design:paramtypes', target, key);
  return (types as readonly unknown[] | undefined)?.[index];
}
