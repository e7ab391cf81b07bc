import { cleanup, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeAll, expect, test, vi } from "vitest";
import { Confirm } from "./Confirm";

beforeAll(() => {
  // jsdom knows the element, and not how to open it.
  HTMLDialogElement.prototype.showModal = function (this: HTMLDialogElement) {
    this.open = true;
  };
});
afterEach(cleanup);

function ask(run: () => Promise<void>) {
  const close = vi.fn();
  render(
    <Confirm title="Sure?" action="Do it" run={run} close={close}>
      <p>It will happen.</p>
    </Confirm>,
  );
  return close;
}

test("nothing happens before it is confirmed, and it closes once it is done", async () => {
  const run = vi.fn(() => Promise.resolve());
  const close = ask(run);
  expect(screen.getByText("It will happen.")).toBeTruthy();
  expect(run).not.toHaveBeenCalled();
  await userEvent.click(screen.getByRole("button", { name: "Do it" }));
  expect(run).toHaveBeenCalledOnce();
  await waitFor(() => expect(close).toHaveBeenCalledOnce());
});

test("an error is shown, and it can be tried again", async () => {
  const close = ask(() => Promise.reject(new Error("the store is away")));
  await userEvent.click(screen.getByRole("button", { name: "Do it" }));
  expect((await screen.findByRole("alert")).textContent).toContain("the store is away");
  expect(close).not.toHaveBeenCalled();
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Do it" }).disabled).toBe(false);
});

test("what nothing brings back has to be typed first", async () => {
  const run = vi.fn(() => Promise.resolve());
  render(
    <Confirm title="Sure?" action="Remove" typed="words" run={run} close={vi.fn()}>
      <p>It is gone then.</p>
    </Confirm>,
  );
  const button = screen.getByRole<HTMLButtonElement>("button", { name: "Remove" });
  await userEvent.type(screen.getByLabelText("Type words to confirm"), "word");
  expect(button.disabled).toBe(true);
  await userEvent.type(screen.getByLabelText("Type words to confirm"), "s");
  await userEvent.click(button);
  expect(run).toHaveBeenCalledOnce();
});
