# A hook asks for a gradient that is gone.
# Press Check, and follow its advice.

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


class PrintGradient(Extension):
    def post_train_step(self, gradient):
        print(f"gradient {gradient:.3f}")


training = Training(extensions=[PrintGradient()])

if __name__ == "__main__":
    training.train([(1, 3), (2, 6), (1, 3)])
