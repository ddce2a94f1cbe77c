//! Gradient checkpointing by hand: a forward pass in segments that keeps only each segment's input, and a backward pass that
//! recomputes one segment at a time. libtorch's own checkpointing lives in Python, so the chain rule between segments is done here:
//! the gradient that arrives at a segment's output is fed to the recomputed output as the weights of a sum.

use tch::Tensor;

type Segment<'a> = Box<dyn Fn(&Tensor) -> Tensor + 'a>;

/// Segments run so far, with their inputs.
pub struct Tape<'a> {
    segments: Vec<(Tensor, Segment<'a>)>,
    /// The last segment's output, cut from any graph; the loss hangs on it.
    output: Tensor,
}

impl std::fmt::Debug for Tape<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Tape")
            .field("segments", &self.segments.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Tape<'a> {
    /// Starts at `input`, through which no gradient flows further back.
    pub fn new(input: &Tensor) -> Self {
        Self {
            segments: Vec::new(),
            output: input.detach(),
        }
    }

    /// Runs one more segment without recording its graph.
    pub fn run(&mut self, segment: impl Fn(&Tensor) -> Tensor + 'a) {
        let output = tch::no_grad(|| segment(&self.output));
        let input = std::mem::replace(&mut self.output, output);
        self.segments.push((input, Box::new(segment)));
    }

    /// The output so far as a leaf of its own, for the loss; its gradient is what [`Tape::backward`] starts from.
    pub fn leaf(&mut self) -> Tensor {
        self.output = self.output.detach().set_requires_grad(true);
        self.output.shallow_clone()
    }

    /// Sends the gradient collected in the leaf back through every segment, into the parameters' `grad`. Call it once, after the
    /// loss's own `backward`.
    pub fn backward(self) {
        let mut gradient = self.output.grad();
        for (input, segment) in self.segments.into_iter().rev() {
            if !gradient.defined() {
                return;
            }
            // An index (the first segment's token ids) takes no gradient.
            let differentiable = input.is_floating_point();
            let leaf = input.detach().set_requires_grad(differentiable);
            let output = tch::with_grad(|| segment(&leaf));
            (output * &gradient).sum(None::<tch::Kind>).backward();
            gradient = if differentiable {
                leaf.grad()
            } else {
                Tensor::new()
            };
        }
    }
}
