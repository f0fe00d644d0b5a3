/** The page of the shop: a form, and the orders, which it asks for every second. */
export const SHOP_PAGE = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <title>Shop</title>
    <style>
      body { font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 2rem auto; padding: 0 1rem; }
      td, th { padding: 0.25rem 1rem 0.25rem 0; text-align: left; }
    </style>
  </head>
  <body>
    <h1>Shop</h1>
    <p>
      <a href="webhooks/console/">Delivery console</a> (admin) ·
      <a href="portal">What the warehouse sees</a>
    </p>
    <form>
      <label>Customer <input name="customer" value="Ada" required /></label>
      <label>Total in cents <input name="total" type="number" value="4200" min="1" required /></label>
      <button>Order</button>
    </form>
    <table>
      <thead><tr><th>Order</th><th>Customer</th><th>Total</th><th>Status</th></tr></thead>
      <tbody></tbody>
    </table>
    <script type="module">
      const form = document.querySelector('form');
      const rows = document.querySelector('tbody');

      async function show() {
        const orders = await (await fetch('orders')).json();
        rows.replaceChildren(...orders.map(({ id, customer, total, status }) => {
          const row = document.createElement('tr');
          for (const text of [id.slice(0, 8), customer, total / 100, status]) {
            row.insertCell().textContent = text;
          }
          return row;
        }));
      }

      form.addEventListener('submit', async (event) => {
        event.preventDefault();
        const { customer, total } = Object.fromEntries(new FormData(form));
        await fetch('orders', {
          method: 'POST',
          headers: { 'Content-Type': 'application/json' },
          body: JSON.stringify({ customer, total: Number(total) }),
        });
        await show();
      });
      await show();
      setInterval(show, 1000);
    </script>
  </body>
</html>
`;
