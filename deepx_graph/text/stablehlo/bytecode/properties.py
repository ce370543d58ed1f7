"""How the properties of operations lie in bytecode: the inherent attributes of each in the alphabetical order of their names.

`name?` is one that may be missing, and has a flag that says so; VHLO writes all. `*` after an operation's name: the sizes of its
groups of operands follow. Of VHLO each version of an operation has its line. Sources: the dialects' definitions of operations
(VhloOps.td, StablehloOps.td, ChloOps.td of https://github.com/openxla/stablehlo at 1.20; sdy/ir/ops.td of
https://github.com/openxla/shardy), held against files that jaxlib 0.10.2 writes.
"""

from __future__ import annotations

from typing import NamedTuple


class Properties(NamedTuple):
    """The names of the properties of an operation, each with whether it may be missing."""

    names: tuple[tuple[str, bool], ...]
    segments: bool = False


_GENERAL_DIMS = "input_batch_dimension input_feature_dimension input_spatial_dimensions kernel_input_feature_dimension " \
                "kernel_output_feature_dimension kernel_spatial_dimensions lhs_dilation output_batch_dimension " \
                "output_feature_dimension output_spatial_dimensions"

_VHLO = f"""
abs_v1 add_v1 after_all_v1 and_v1 async_done_v1 async_start_v1 atan2_v1 bitcast_convert_v1 case_v1 cbrt_v1 ceil_v1 clamp_v1
 complex_v1 convert_v1 cosine_v1 count_leading_zeros_v1 create_token_v1 divide_v1 dynamic_pad_v1 dynamic_reshape_v1
 dynamic_update_slice_v1 exponential_v1 exponential_minus_one_v1 floor_v1 if_v1 imag_v1 is_finite_v1 log_v1 log_plus_one_v1
 logistic_v1 maximum_v1 minimum_v1 multiply_v1 negate_v1 not_v1 optimization_barrier_v1 or_v1 partition_id_v1 popcnt_v1 power_v1
 real_v1 real_dynamic_slice_v1 remainder_v1 replica_id_v1 reshape_v1 return_v1 round_nearest_afz_v1 round_nearest_even_v1 rsqrt_v1
 select_v1 shift_left_v1 shift_right_arithmetic_v1 shift_right_logical_v1 sign_v1 sine_v1 sqrt_v1 subtract_v1 tan_v1 tanh_v1
 tuple_v1 uniform_dequantize_v1 uniform_quantize_v1 while_v1 xor_v1 :
cbrt_v2 cosine_v2 exponential_v2 exponential_minus_one_v2 log_v2 log_plus_one_v2 logistic_v2 rsqrt_v2 sine_v2 sqrt_v2 tan_v2
 tanh_v2 : result_accuracy
all_gather_v1 all_gather_v2 : all_gather_dim channel_id replica_groups use_global_device_ids
all_reduce_v1 all_reduce_v2 : channel_id replica_groups use_global_device_ids
all_to_all_v1 all_to_all_v2 : channel_id concat_dimension replica_groups split_count split_dimension
batch_norm_grad_v1 batch_norm_inference_v1 batch_norm_training_v1 : epsilon feature_index
broadcast_v1 : broadcast_sizes
broadcast_in_dim_v1 : broadcast_dimensions
call_v1 : callee
cholesky_v1 : lower
collective_broadcast_v1 : channel_id replica_groups
collective_broadcast_v2 : channel_id has_dynamic_root replica_groups
collective_permute_v1 : channel_id source_target_pairs
collective_reduce_v1 : channel_id has_dynamic_root replica_groups use_global_device_ids
compare_v1 : compare_type comparison_direction
composite_v1 composite_v2 : composite_attributes decomposition name version
concatenate_v1 : dimension
constant_v1 : value
convolution_v1 dynamic_conv_v1 : batch_group_count feature_group_count {_GENERAL_DIMS} padding precision_config rhs_dilation
 window_reversal window_strides
cross-replica-sum_v1 : replica_groups
custom_call_v1 : api_version backend_config call_target_name called_computations has_side_effect operand_layouts
 output_operand_aliases result_layouts
custom_call_v2 : api_version backend_config call_target_name called_computations has_side_effect operand_layouts
 output_operand_aliases result_layouts result_tilings
dot_v1 : precision_config
dot_general_v1 : lhs_batching_dimensions lhs_contracting_dimensions precision_config rhs_batching_dimensions
 rhs_contracting_dimensions
dot_general_v2 : accumulation_type allow_imprecise_accumulation lhs_batching_dimensions lhs_component_count
 lhs_contracting_dimensions lhs_precision_type num_primitive_operations precision_config rhs_batching_dimensions
 rhs_component_count rhs_contracting_dimensions rhs_precision_type
dynamic_broadcast_in_dim_v1 : broadcast_dimensions known_expanding_dimensions known_nonexpanding_dimensions
dynamic_conv_v2 : batch_group_count feature_group_count {_GENERAL_DIMS} precision_config rhs_dilation window_reversal window_strides
dynamic_gather_v1 : collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims start_index_map
dynamic_gather_v2 : collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims operand_batching_dims start_index_map
 start_indices_batching_dims
dynamic_iota_v1 iota_v1 : iota_dimension
dynamic_slice_v1 : slice_sizes
einsum_v1 unary_einsum_v1 : einsum_config
fft_v1 : fft_length fft_type
func_v1 : arg_attrs function_type res_attrs sym_name sym_visibility
gather_v1 : collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims slice_sizes start_index_map
gather_v2 : collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims operand_batching_dims slice_sizes start_index_map
 start_indices_batching_dims
get_dimension_size_v1 set_dimension_size_v1 : dimension
get_tuple_element_v1 : index
infeed_v1 : infeed_config layout
map_v1 : dimensions
outfeed_v1 : outfeed_config
pad_v1 : edge_padding_high edge_padding_low interior_padding
recv_v1 send_v1 : channel_id channel_type is_host_transfer
recv_v2 send_v2 : channel_id channel_type is_host_transfer source_target_pairs
reduce_v1 reverse_v1 : dimensions
reduce_precision_v1 : exponent_bits mantissa_bits
reduce_scatter_v1 : channel_id replica_groups scatter_dimension use_global_device_ids
reduce_window_v1 : base_dilations padding window_dilations window_dimensions window_strides
rng_v1 : rng_distribution
rng_bit_generator_v1 : rng_algorithm
scatter_v1 : index_vector_dim indices_are_sorted inserted_window_dims scatter_dims_to_operand_dims unique_indices
 update_window_dims
scatter_v2 : index_vector_dim indices_are_sorted input_batching_dims inserted_window_dims scatter_dims_to_operand_dims
 scatter_indices_batching_dims unique_indices update_window_dims
select_and_scatter_v1 : padding window_dimensions window_strides
slice_v1 : limit_indices start_indices strides
sort_v1 : dimension is_stable
torch_index_select_v1 : batch_dims dim
transpose_v1 : permutation
triangular_solve_v1 : left_side lower transpose_a unit_diagonal
"""

_STABLEHLO = """
cbrt cosine exponential exponential_minus_one log log_plus_one logistic rsqrt sine sqrt tan tanh : result_accuracy?
all_gather : all_gather_dim channel_handle? replica_groups use_global_device_ids?
all_reduce : channel_handle? replica_groups use_global_device_ids?
all_to_all : channel_handle? concat_dimension replica_groups split_count split_dimension
batch_norm_grad batch_norm_inference batch_norm_training : epsilon feature_index
broadcast : broadcast_sizes
broadcast_in_dim : broadcast_dimensions
cholesky : lower?
collective_broadcast : channel_handle? replica_groups
collective_permute : channel_handle? source_target_pairs
compare : compare_type? comparison_direction
composite : composite_attributes? decomposition name version?
concatenate : dimension
constant : value
convolution : batch_group_count dimension_numbers feature_group_count lhs_dilation? padding? precision_config? rhs_dilation?
 window_reversal? window_strides?
cross-replica-sum : replica_groups
custom_call : api_version? backend_config? call_target_name called_computations? has_side_effect? operand_layouts?
 output_operand_aliases? result_layouts?
dot : precision_config?
dot_general : algorithm? dot_dimension_numbers precision_config?
dynamic_broadcast_in_dim : broadcast_dimensions known_expanding_dimensions? known_nonexpanding_dimensions?
dynamic_conv : batch_group_count dimension_numbers feature_group_count lhs_dilation? precision_config? rhs_dilation?
 window_reversal? window_strides?
dynamic_gather : dimension_numbers indices_are_sorted?
dynamic_iota iota : iota_dimension
dynamic_slice : slice_sizes
einsum unary_einsum : einsum_config
fft : fft_length fft_type
gather : dimension_numbers indices_are_sorted? slice_sizes
get_dimension_size set_dimension_size : dimension
get_tuple_element : index
infeed : infeed_config layout?
map reduce reverse : dimensions
outfeed : outfeed_config
pad : edge_padding_high edge_padding_low interior_padding
recv send : channel_handle is_host_transfer? source_target_pairs?
reduce_precision : exponent_bits mantissa_bits
reduce_scatter : channel_handle? replica_groups scatter_dimension use_global_device_ids?
reduce_window : base_dilations? padding? window_dilations? window_dimensions window_strides?
rng : rng_distribution
rng_bit_generator : rng_algorithm
scatter : indices_are_sorted? scatter_dimension_numbers unique_indices?
select_and_scatter : padding? window_dimensions? window_strides?
slice : limit_indices start_indices strides
sort : dimension? is_stable?
torch_index_select : batch_dims dim
transpose : permutation
triangular_solve : left_side lower transpose_a unit_diagonal
"""

_CHLO = """
broadcast_add broadcast_and broadcast_atan2 broadcast_complex broadcast_divide broadcast_maximum broadcast_minimum
 broadcast_multiply broadcast_next_after broadcast_or broadcast_polygamma broadcast_power broadcast_remainder broadcast_shift_left
 broadcast_shift_right_arithmetic broadcast_shift_right_logical broadcast_subtract broadcast_xor broadcast_zeta
 : broadcast_dimensions?
broadcast_compare : broadcast_dimensions? compare_type? comparison_direction
constant constant_like : value
ragged_dot : precision_config? ragged_dot_dimension_numbers
scan * : dimension is_associative? is_reverse? scan_dim_size?
top_k : k
"""

_MHLO = """
all_to_all : channel_handle? concat_dimension? replica_groups split_count? split_dimension?
async_done async_start async_update : called_computation execution_thread
copy : cross_program_prefetch_index?
custom_call : api_version? backend_config? call_target_name called_computations? custom_call_schedule? has_side_effect?
 operand_layouts? output_operand_aliases? result_layouts?
domain : entry_metadata exit_metadata kind
dynamic_conv : batch_group_count dimension_numbers feature_group_count lhs_dilation? padding? precision_config? rhs_dilation?
 window_reversal? window_strides?
fusion : fusion_kind? output_operand_aliases?
topk : k largest?
trace : tag
"""
"""Those that lie in another way than StableHLO's."""

_FUNC = """
call : arg_attrs? callee no_inline? res_attrs?
call_indirect : arg_attrs? res_attrs?
constant : value
func : arg_attrs? function_type no_inline? res_attrs? sym_name sym_visibility?
"""

_SDY = """
all_gather : gathering_axes out_sharding
all_reduce : out_sharding reduction_axes
all_slice : out_sharding slicing_axes
all_to_all : out_sharding params
collective_permute : out_sharding
constant : value
data_flow_edge : sharding?
manual_computation : in_shardings manual_axes out_shardings
mesh : mesh sym_name
named_computation : in_shardings? name out_shardings?
propagation_barrier : allowed_direction
reduce_scatter : out_sharding reduce_scatter_axes
replicated_to_unreduced sharded_to_unreduced : axes out_sharding
reshard sharding_constraint : sharding
sharding_group : group_id
"""


def _table(dialect: str, text: str) -> dict[str, Properties]:
    found: dict[str, Properties] = {}
    for line in text.replace("\n ", " ").split("\n"):
        left, _, right = line.partition(":")
        names = tuple((word.rstrip("?"), word.endswith("?")) for word in right.split())
        found |= {f"{dialect}.{op}": Properties(names, "*" in left) for op in left.replace("*", "").split()}
    return found


PROPERTIES: dict[str, Properties] = {
    **_table("vhlo", _VHLO), **_table("stablehlo", _STABLEHLO), **_table("chlo", _CHLO),
    **_table("mhlo", _STABLEHLO), **_table("mhlo", _MHLO),
    **_table("func", _FUNC), **_table("sdy", _SDY), **_table("builtin", "module : sym_name? sym_visibility?"),
}  # fmt: skip
"""Every operation that has properties, and all of VHLO."""
