# A training in pure Python, and two extensions.
# Press Run, then Explain. Then misspell something, and press Check.

from train_manager import Extensible, Extension, modifies


class Training(Extensible):
    weight = 0.0

    def train(self, batches):
        for x, y in batches:
            # a stage, and two fixtures that live as long as it
            with self.staged("train_step", {"x": x, "y": y}):
                error = self.weight * x - y
                self.fixtures["loss"] = error**2  # a third fixture
                gradient = 2 * error * x
                with self.staged("update", {"gradient": gradient}):
                    self.weight -= 0.1 * self.fixtures["gradient"]


class PrintLoss(Extension):
    # a hook: it runs after each train_step, and gets the loss
    def post_train_step(self, loss):
        print(f"loss {loss:.3f}")


class Clip(Extension):
    # a hook that changes the training, without a line in it
    @modifies("gradient")
    def pre_update(self, gradient):
        return max(-10.0, min(10.0, gradient))


training = Training(extensions=[PrintLoss(), Clip()])

if __name__ == "__main__":  # Check and Explain go no further
    training.train([(1, 3), (2, 6)] * 3)
    print(f"y = {training.weight:.2f} * x")
