"""A training in pure Python, and two extensions. Press Run, then Explain."""

from train_manager import Extensible, Extension, modifies


class Training(Extensible):
    weight = 0.0

    def train(self, batches):
        for x, y in batches:
            with self.staged("train_step", {"x": x, "y": y}):  # a stage, with two fixtures
                error = self.weight * x - y
                self.fixtures["loss"] = error**2  # a third one; it lives until its stage ends
                with self.staged("update", {"gradient": 2 * error * x}):
                    self.weight -= 0.1 * self.fixtures["gradient"]


class PrintLoss(Extension):
    def post_train_step(self, loss):  # a hook: runs after each train_step, and gets the loss
        print(f"loss {loss:.3f}")


class Clip(Extension):
    @modifies("gradient")
    def pre_update(self, gradient):  # changes the training, and the training knows nothing of it
        return max(-4.0, min(4.0, gradient))


training = Training(extensions=[PrintLoss(), Clip()])

if __name__ == "__main__":  # Check and Explain stop here: they run nothing
    training.train([(1, 3), (2, 6), (1, 3), (2, 6), (1, 3)])
    print(f"y = {training.weight:.2f} * x")
