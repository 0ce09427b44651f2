# Three slips of the pen.
# Press Check: all three are found, and nothing has run.

from train_manager import Extensible, Extension


class Training(Extensible):
    weight = 0.0

    def train(self, batches):
        for x, y in batches:
            with self.staged("train_step", {"x": x, "y": y}):
                error = self.weight * x - y
                self.fixtures["loss"] = error**2
                gradient = 2 * error * x
                with self.staged("update", {"gradient": gradient}):
                    self.weight -= 0.1 * self.fixtures["gradient"]


class PrintLoss(Extension):
    def post_train_stpe(self, loss):
        print(f"loss {loss:.3f}")

    def post_train_step(self, los):
        print(f"loss {los:.3f}")

    def pre_update(self, gradeint):
        print(f"gradient {gradeint:.3f}")


training = Training(extensions=[PrintLoss()])

if __name__ == "__main__":
    training.train([(1, 3), (2, 6), (1, 3)])
