"""Faults of the reference implementation (spade-rl/spade at 9b2b813), and which tests fail if one comes back.

An index: each test that it names has to be there. Its numbers stand in the names of tests elsewhere.
"""

import ast
import functools
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
DEFECTS = {
    "1: plays with and without hint differ in instances, number, mode and limits": [
        "rollout/test_collect.py::test_both_conditions_play_the_same_instances",
        "cycle/test_games.py::test_both_conditions_play_the_same_instances_and_one_of_them_sees_the_hint",
        "cycle/test_games.py::test_defect_1_the_conditions_are_played_alike_but_for_the_hint",
        "rl/test_regret.py::test_defect_1_chance_instances_tilt_the_unpaired_estimate_and_not_the_paired_one",
    ],
    "2: episodes side by side share one random state, so that a seed names no instance": [
        "sandbox/test_determinism.py::test_repeats_in_another_child_of_another_server",
        "sandbox/test_environment.py::test_many_play_at_once_without_mixing_answers",
    ],
    "3: seeds come from hash(), which differs from process to process": [
        "test_seeding.py::test_seeds_are_the_same_in_every_process",
        "train/test_resume.py::test_killed_in_the_warm_start_and_run_under_another_hash_seed",
    ],
    "4: the token that ends a hint ends the message that tells it": [
        "rollout/test_templates.py::test_defect_4_the_token_that_ends_a_hint_does_not_end_the_message_that_tells_it",
        "roles/test_hints.py::test_what_stands_around_a_hint_is_taken_off",
        "text/test_template_chat.py::test_a_stop_token_is_no_part_of_what_a_reply_says",
        "cycle/test_designs.py::test_hints_from_each_source",
    ],
    "5: nested arguments of a tool call are lost": [
        "text/test_tool_calls.py::test_both_forms_keep_arguments_whole",
        "text/test_tool_calls.py::test_any_arguments_survive_as_json",
        "cycle/test_tool_use.py::test_what_calls_say_comes_back_and_what_is_malformed_is_said",
    ],
    "6: several calls in one turn corrupt the token stream": [
        "rollout/test_templates.py::test_defects_6_and_7_each_reply_has_the_context_that_the_template_writes",
        "text/test_template_chat.py::test_a_stream_is_the_tokenization_of_its_conversation",
        "text/test_template_chat.py::test_results_of_several_calls_are_one_user_turn",
    ],
    "7: thinking is switched after the first turn, and earlier thoughts are cut out of what was sampled": [
        "rollout/test_templates.py::test_defects_6_and_7_each_reply_has_the_context_that_the_template_writes",
        "text/test_template_chat.py::test_where_a_template_rewrites_the_past",
        "rollout/test_conversation.py::"
        "test_a_format_that_rewrites_gives_a_stream_for_each_reply_in_the_context_it_had",
    ],
    "8: calls and answers are read inside thinking": [
        "text/test_tool_calls.py::test_an_answer_beats_calls",
        "text/test_tool_calls.py::test_what_is_neither_answer_nor_call",
        "cycle/test_tool_use.py::test_what_calls_say_comes_back_and_what_is_malformed_is_said",
    ],
    "9: a fault of an environment is a loss of the agent": [
        "rl/test_regret.py::test_defect_9_a_fault_of_the_environment_is_no_loss_of_the_agent",
        "rollout/test_episode.py::test_an_environment_that_fails_in_the_middle",
        "cycle/test_games.py::test_the_batch_holds_both_roles_with_their_advantages",
    ],
    "10: the default reward overlooks invalid designs and timeouts": [
        "rl/test_designer_reward.py::test_defect_10_a_timeout_costs_in_every_kind",
        "rl/test_designer_reward.py::test_defect_10_no_timeout_escapes_by_being_unknown_or_negative",
        "rl/test_designer_reward.py::test_defect_10_a_rejected_design_stands_below_the_others",
        "cycle/test_rewards.py::"
        "test_an_environment_that_gives_no_answer_in_time_costs_and_a_fault_of_the_host_does_not",
    ],
    "11: the moving baseline starts anew in every cycle": [
        "rl/test_advantage.py::test_defect_11_the_baseline_accumulates_over_the_groups_of_an_environment",
        "cycle/test_rewards.py::test_the_baseline_follows_an_environment_while_it_is_played",
    ],
    "12: delayed designs are lost, or trained on with the reward of nothing": [
        "cycle/test_windows.py::test_defect_12_every_design_is_rewarded_once_for_the_plays_of_its_window",
        "cycle/test_windows.py::test_a_run_that_stops_with_open_designs_goes_on_as_if_it_had_not",
    ],
    "13: whole environments are cut off a batch after their advantages were taken": [
        "rl/test_packing.py::test_defects_13_and_15_every_trained_sequence_stands_whole_in_exactly_one_place",
        "cycle/test_games.py::test_the_batch_holds_both_roles_with_their_advantages",
    ],
    "14: the designer's advantages are multiplied by up to 50": [
        "rl/test_packing.py::test_defect_14_more_episodes_do_not_drown_the_designer",
        "cycle/test_rewards.py::test_roles_are_balanced_by_their_means_or_by_a_factor",
    ],
    "15: copies that fill a batch up are trained on": [
        "rl/test_packing.py::test_defects_13_and_15_every_trained_sequence_stands_whole_in_exactly_one_place",
        "cycle/test_games.py::test_the_batch_holds_both_roles_with_their_advantages",
    ],
    "16: long episodes are dropped, not truncated": [
        "rl/test_regret.py::test_defect_16_a_truncated_episode_is_a_loss_not_a_gap",
        "rollout/test_episode.py::test_the_turn_limit_truncates_and_is_worth_nothing",
    ],
    "17: the first box and the first verdict count, though the last is meant": [
        "text/test_extract.py::test_the_last_complete_box_counts",
        "roles/test_judge.py::test_the_last_verdict_counts_and_none_is_none",
    ],
    "18: partial rewards and losses pass for a win rate": [
        "rl/test_designer_reward.py::"
        "test_defect_18_partial_and_negative_rewards_do_not_pass_for_a_win_rate_of_one_half",
    ],
    "19: environments that leak, cannot be solved, repeat others or are won by chance earn as others do": [
        "environments/validation/test_rungs.py::test_one_rung_rejects_and_only_where_it_is_on",
        "environments/validation/test_rungs.py::test_every_rung_has_a_check_and_a_case",
        "rl/test_designer_reward.py::test_defect_19_a_password_environment_earns_no_regret",
        "cycle/test_rewards.py::test_what_only_the_hint_opens_earns_nothing",
    ],
    "20: a judge that fails accepts, and no tool is called before play": [
        "environments/validation/test_ladder.py::test_the_judge_decides_last",
        "cycle/test_designs.py::test_the_judge_rejects_or_not",
        "environments/validation/test_rungs.py::test_one_rung_rejects_and_only_where_it_is_on",
    ],
    "21: without a document tool use is asked for in another way, and its system prompt is not used": [
        "roles/test_prompts.py::"
        "test_defect_21_grounding_changes_what_a_design_is_about_and_not_what_is_asked_for",
    ],
    "22: remembered programs are cut without a word and drawn without a seed; a score stays as it was": [
        "roles/test_prompts.py::test_long_records_are_cut",
        "memory/test_environment_memory.py::test_draws_of_a_seed_stay_as_they_were",
        "cycle/test_memory.py::test_a_remembered_environment_is_played_again",
    ],
    "23: groups whose returns are all the same take their share of the batch": [
        "rl/test_advantage.py::test_defect_23_a_group_without_variance_is_dropped_or_kept_as_zeros",
        "cycle/test_games.py::test_a_cycle_with_nothing_to_learn_is_survived",
    ],
}


@functools.cache
def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("defect", "tests"), DEFECTS.items(), ids=[name.partition(":")[0] for name in DEFECTS]
)
def test_there_are_tests_against_it(defect, tests):
    for test in tests:
        path, _, name = test.partition("::")
        assert name in names_in(TESTS / path), f"{test} is gone: what else fails where defect {defect}?"


def test_the_index_is_whole():
    assert [int(name.partition(":")[0]) for name in DEFECTS] == list(range(1, 24))
