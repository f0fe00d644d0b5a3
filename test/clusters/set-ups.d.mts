export const SET_UPS: Readonly<Record<string, { readonly needs: readonly string[] }>>;
