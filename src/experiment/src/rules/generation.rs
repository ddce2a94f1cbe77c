//! Engines, the gap to the learner, and dialogues with tools.

use super::Rules;
use crate::settings::{AgentLoop, EngineName};

impl Rules<'_> {
    pub(super) fn rollout(&mut self) {
        let key = "actor_rollout_ref.rollout.name";
        let engine = match self.experiment.actor_rollout_ref.rollout.name {
            EngineName::Embedded => None,
            EngineName::Vllm => Some("vllm"),
            EngineName::Sglang => Some("sglang"),
        };
        if crate::verl::is_asked_for(self.experiment) {
            // verl has its own engines, and none is called embedded.
        } else if let Some(engine) = engine {
            let name = self.name(key);
            self.warn(
                &[key],
                format!("{name} is {engine}, which is not available yet: this build generates with embedded, and a run with {engine} is refused"),
            );
        } else {
            let memory = "actor_rollout_ref.rollout.gpu_memory_utilization";
            if self.has(memory) {
                let name = self.name(memory);
                self.warn(&[memory], format!("{name} has no effect: the embedded engine sizes its cache by max_num_seqs and max_model_len"));
            }
        }
        let longest = self
            .experiment
            .data
            .max_prompt_length
            .saturating_add(self.experiment.data.max_response_length);
        let limit = "actor_rollout_ref.rollout.max_model_len";
        if let Some(length) = self.experiment.actor_rollout_ref.rollout.max_model_len
            && length < longest
        {
            let name = self.name(limit);
            self.error(
                &[limit],
                format!("{name} is {length}; expected at least max_prompt_length + max_response_length, which is {longest}"),
            );
        }
    }

    pub(super) fn dialogue(&mut self) {
        let enable = "actor_rollout_ref.rollout.multi_turn.enable";
        let tools = "actor_rollout_ref.rollout.multi_turn.tool_config_path";
        let agent = "actor_rollout_ref.rollout.agent.default_agent_loop";
        let rollout = &mut self.experiment.actor_rollout_ref.rollout;
        let single = rollout.agent.default_agent_loop == AgentLoop::SingleTurnAgent;
        let has_tools = rollout.multi_turn.tool_config_path.is_some();
        let multi = rollout.multi_turn.enable;
        let chosen = self.has(agent);
        if multi && single && !chosen {
            self.experiment
                .actor_rollout_ref
                .rollout
                .agent
                .default_agent_loop = AgentLoop::ToolAgent;
            let name = self.name(enable);
            self.note(
                &[enable],
                format!("{name} makes tool_agent the loop of rows without agent_name; verl wants rollout.agent.default_agent_loop=tool_agent as well"),
            );
        } else if multi && single {
            let name = self.name(agent);
            self.warn(&[agent, enable], format!("{name} is single_turn_agent, so rows without agent_name call no tool although multi_turn.enable is true"));
        } else if has_tools && single {
            let name = self.name(tools);
            self.warn(&[tools], format!("{name}: the tools are used only by rows whose agent_name is tool_agent; set multi_turn.enable=true for all rows"));
        }
        let loop_of_tools = self
            .experiment
            .actor_rollout_ref
            .rollout
            .agent
            .default_agent_loop
            == AgentLoop::ToolAgent;
        if loop_of_tools && !has_tools {
            self.warn(&[agent, enable], "dialogues run as tool_agent, but rollout.multi_turn.tool_config_path names no tools".to_owned());
        }
    }
}
