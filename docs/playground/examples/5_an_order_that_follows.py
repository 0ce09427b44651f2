# PrintMean is added first, and runs last: the order of hooks follows
# from what they provide and read.
# Press Run, then Explain.

from train_manager import Extensible, Extension, provides


class Training(Extensible):
    weight = 0.0

    def train(self, batches):
        for x, y in batches:
            with self.staged("train_step", {"x": x, "y": y}):
                error = self.weight * x - y
                self.fixtures["loss"] = error**2
                self.weight -= 0.2 * error * x


class PrintMean(Extension):
    def post_train_step(self, loss, mean_loss):
        print(f"loss {loss:.3f}, on average {mean_loss:.3f}")


class MeanLoss(Extension):
    total = count = 0

    # what is returned becomes a fixture, for any hook that names it
    @provides("mean_loss")
    def post_train_step(self, loss):
        self.total, self.count = self.total + loss, self.count + 1
        return self.total / self.count


training = Training(extensions=[PrintMean(), MeanLoss()])

if __name__ == "__main__":
    training.train([(1, 3), (2, 6), (1, 3)])
