//! Whether all queues are empty, for a worker that ends when they are.

/// Which queues to ask, and which have replied that they are empty.
#[derive(Debug)]
pub(super) struct EmptinessCheck {
    queues: Vec<Question>,
    /// Rises whenever a handler may have sent messages to any of the queues.
    round: u64,
    /// The round in which all queues were asked.
    asked_all_in: u64,
    /// Queues to ask in addition, because they have been claimed from since.
    again: Vec<usize>,
    /// The number of queues found empty in this round.
    empty: usize,
}

#[derive(Clone, Debug, Default)]
struct Question {
    /// The round of the question in progress.
    under_way: Option<u64>,
    /// The round in which the queue was last found empty.
    empty_in: u64,
    again: bool,
}

impl EmptinessCheck {
    pub(super) fn new(queues: usize) -> Self {
        let queues = vec![Question::default(); queues];
        Self { queues, round: 1, asked_all_in: 0, again: Vec::new(), empty: 0 }
    }

    /// A handler may have sent messages to any of the queues.
    pub(super) const fn something_happened(&mut self) {
        self.round += 1;
        self.empty = 0;
    }

    /// Other workers may have emptied the queue.
    pub(super) fn ask_again(&mut self, queue: usize) {
        if let Some(question) = self.queues.get_mut(queue)
            && !std::mem::replace(&mut question.again, true)
        {
            self.again.push(queue);
        }
    }

    /// Returns the queues to ask now.
    pub(super) fn ask(&mut self) -> Vec<usize> {
        let wanted = if self.asked_all_in == self.round {
            std::mem::take(&mut self.again)
        } else {
            self.asked_all_in = self.round;
            self.again.clear();
            (0..self.queues.len()).collect()
        };
        wanted.into_iter().filter(|queue| self.ask_one(*queue)).collect()
    }

    fn ask_one(&mut self, queue: usize) -> bool {
        let Some(question) = self.queues.get_mut(queue) else { return false };
        // One question at a time.
        question.again = question.under_way.is_some();
        if question.again {
            self.again.push(queue);
            return false;
        }
        question.under_way = Some(self.round);
        true
    }

    /// A queue has replied. Replies to questions of earlier rounds do not count.
    pub(super) fn answered(&mut self, queue: usize, is_empty: bool) {
        let Some(question) = self.queues.get_mut(queue) else { return };
        let asked_in = question.under_way.take();
        let was_empty = question.empty_in == self.round;
        let is_empty = is_empty && asked_in == Some(self.round);
        question.empty_in = if is_empty { self.round } else { 0 };
        match (was_empty, is_empty) {
            (false, true) => self.empty += 1,
            (true, false) => self.empty -= 1,
            _ => {}
        }
    }

    pub(super) const fn all_empty(&self) -> bool {
        self.empty == self.queues.len()
    }
}
