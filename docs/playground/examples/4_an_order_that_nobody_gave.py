# Two hooks change one value, and nothing says which is first.
# Press Check; then uncomment the priority of Halve, and press Explain.

from train_manager import Extensible, Extension, modifies


class Training(Extensible):
    weight = 0.0

    def train(self, batches):
        for x, y in batches:
            with self.staged("train_step", {"x": x, "y": y}):
                error = self.weight * x - y
                gradient = 2 * error * x
                with self.staged("update", {"gradient": gradient}):
                    self.weight -= 0.1 * self.fixtures["gradient"]


class Clip(Extension):
    @modifies("gradient")
    def pre_update(self, gradient):
        return max(-1.0, min(1.0, gradient))


class Halve(Extension):
    # priority = -1  # the cure: lower numbers run first
    @modifies("gradient")
    def pre_update(self, gradient):
        return gradient / 2


training = Training(extensions=[Clip(), Halve()])

if __name__ == "__main__":
    training.train([(1, 3), (2, 6), (1, 3)])
    print(f"y = {training.weight:.2f} * x")
