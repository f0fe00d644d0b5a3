import { z } from 'zod';

export const Payment = z.object({
  id: z.string().min(1),
  amount: z.int().positive(),
  paidAt: z.coerce.date(),
});

export type Payment = z.infer<typeof Payment>;
